"""The pictures of the lesson, as a notebook and as the console shows them."""

from __future__ import annotations

import dataclasses
import gzip
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from podyard import lesson
from podyard.base.errors import PodyardError
from podyard.engine.numerics.explain import decimal_operands
from podyard.engine.timing.tpu_v1 import TPU_V1
from podyard.engine.timing.tpu_v1_apps import speedups
from podyard.hardware.generation import GIB
from podyard.hardware.generations import GENERATIONS
from podyard.web.front.lesson_steps import LESSON_PAGES, STEPS
from tests.unit.engine.pages import Reader, open_console

ROOT = Path(__file__).parents[3]
PAGE_BYTES_MAX = 80_000  # of a page with its style sheets and scripts, as they are sent


def sent_bytes(url: str) -> int:
    """The largest style sheet or script of this name, compressed as the console does."""
    files = [
        path
        for folder in ("web", "podyard/engine")
        for path in (ROOT / folder).rglob(url.rsplit("/", 1)[-1])
    ]
    return max(len(gzip.compress(file.read_bytes())) for file in files)


def shown(picture: Any) -> Reader:
    """Return what a notebook gets, after a check that it is well formed and asks for nothing
    else."""
    html = str(picture._repr_html_())
    assert html.startswith("<style>") and "<script" not in html and " src=" not in html
    for tag in ("div", "svg", "table", "figure", "g"):
        assert html.count(f"<{tag} ") + html.count(f"<{tag}>") == html.count(f"</{tag}>"), tag
    for attributes in re.findall(r"<svg([^>]*)>", html):
        assert 'role="img"' in attributes and "aria-label=" in attributes, (
            "a picture says in words what it shows"
        )
    return Reader(html)


@pytest.mark.parametrize("name", GENERATIONS)
def test_each_generation_has_its_figures_with_sources(name: str) -> None:
    one = GENERATIONS[name]
    page = shown(lesson.sources(name))
    assert (
        f"{one.hbm_bytes / GIB:g} GiB" in page.text
        and f"{one.mxu_rows} x {one.mxu_columns}" in page.text
    )
    for field in ("hbm_bytes", "mxu_rows", "clock_hz"):
        assert one.sources[field] in page.text


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_chip_is_drawn_with_all_its_units_memory_and_links(name: str) -> None:
    one = GENERATIONS[name]
    page = shown(lesson.chips(name, name))
    classes = [attributes.get("class") for attributes in page.having("class")]
    assert classes.count("unit") == 2 * one.cores_per_chip * one.mxu_count_per_core
    assert classes.count("core") == 2 * one.cores_per_chip
    assert classes.count("wire") == 2 * one.ici_links_per_chip
    assert classes.count("memory") == 2 * -(-one.hbm_bytes // (8 * GIB))


def test_chips_are_compared_by_their_figures() -> None:
    page = shown(lesson.chips("v2", "v3"))
    assert "46 TFLOPS123 TFLOPS2.7 times" in page.text and "700 GB/s900 GB/s1.3 times" in page.text
    with pytest.raises(PodyardError, match='unknown generation "v9": use v1, v2'):
        lesson.chips("v9", "v3")


def test_a_device_is_compared_with_its_chips() -> None:
    page = shown(lesson.device("v3-8"))
    for fact in ("4 x 123 = 492 TFLOPS, but the device was sold with 420: 105 for each chip",
        "the clock is 801 MHz",
                 "256 x 420 TFLOPS = 107.5 petaflops", "128 GB are 4 x 32 GiB",
                 "936.9 MHz"):  # fmt: skip
        assert fact in page.text
    assert "sold with 180: 45 for each chip" in shown(lesson.device("v2-8")).text
    with pytest.raises(PodyardError, match='"v4-8" was not sold as a device: use v2-8 or v3-8'):
        lesson.device("v4-8")


@pytest.mark.parametrize(
    ("value", "single", "short"),
    [
        (0.1, "0 01111011 10011001100110011001101", "0 01111011 1001101"),
        # a tie goes to the even side
        (257.0, "0 10000111 00000001000000000000000", "0 10000111 0000000"),
        (-1.5, "1 01111111 10000000000000000000000", "1 01111111 1000000"),
        (1e39, "0 11111111 00000000000000000000000", "0 11111111 0000000"),
        (1e-45, "0 00000000 00000000000000000000001", "0 00000000 0000000"),
        (0.0, "0 00000000 00000000000000000000000", "0 00000000 0000000"),
    ],
)
def test_the_bits_of_a_number_are_those_of_ieee(value: float, single: str, short: str) -> None:
    page = shown(lesson.digits(value))
    first, second = single.replace(" ", ""), short.replace(" ", "")
    told = next(
        str(one["aria-label"])
        for one in page.having("aria-label")
        if "float32" in str(one["aria-label"])
    )
    assert f"float32 {first[:16]} {first[16:]}, bfloat16 {second}" in told


def test_the_number_next_to_257_are_those_that_bfloat16_has() -> None:
    text = shown(lesson.digits(257)).text
    assert "255" in text and "258" in text and "0.0039 of it" in text
    with pytest.raises(PodyardError, match="must be finite"):
        lesson.digits(float("nan"))


def test_the_digits_of_a_product_are_those_of_its_operands() -> None:
    x, w = decimal_operands(3, 5, 2, 7)
    short = [a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (x, w)]
    text = shown(lesson.product(3, 5, 2, seed=7)).text
    for exact, rounded in zip((x @ w).flat, (short[0] @ short[1]).flat, strict=True):
        assert f"{exact:.5f}{rounded:.5f}" in text


def test_four_times_the_bandwidth_is_about_three_times_as_fast() -> None:
    text = shown(lesson.first_tpu(4)).text
    factors = speedups(
        dataclasses.replace(TPU_V1, weight_bytes_per_second=4 * TPU_V1.weight_bytes_per_second)
    )
    assert (
        f"{factors.weighted_mean:.1f} times on average" in text
        and 2.8 < factors.weighted_mean < 3.3
    )
    assert "256 x 256 cells for 8-bit integers, 92 TOPS" in text
    for name, factor in factors.each.items():
        assert name in text and f"{factor:.1f} x" in text
    with pytest.raises(PodyardError, match="bandwidth must be above 0"):
        lesson.first_tpu(0)


def test_the_edge_tpu_is_only_what_is_published() -> None:
    text = shown(lesson.edge_tpu(2_000_000_000, 10_000_000, 0)).text
    assert "4 TOPS" in text and "2 W" in text and "not published" in text
    assert "At least 4 ms, limited by the link; 2 MB of weights do not fit" in text


def test_films_stand_still_at_a_step_in_a_notebook() -> None:
    assert "Cycle 5 (last: 13)" in shown(lesson.mxu(cycle=5)).text
    assert "Step 2 of 4" in shown(lesson.all_reduce("v2-8", step=2)).text
    assert "Step 3 of 6" in shown(lesson.all_reduce(ranks=4, step=3)).text


@pytest.mark.slow
def test_the_console_shows_the_pictures_of_the_notebook(tmp_path: Path) -> None:
    with open_console(tmp_path) as get:
        same = {
            "generations?a=v4&b=v6e": (
                lesson.chips("v4", "v6e"),
                lesson.sources("v4"),
                lesson.sources("v6e"),
            ),
            "device?type=v2-8": (lesson.device("v2-8"),),
            "digits?value=-7.3": (lesson.digits(-7.3),),
            "mxu?numbers=decimal&seed=3": (lesson.product(seed=3),),
            "tpu-v1?bandwidth=2&macs=10": (lesson.first_tpu(2), lesson.edge_tpu(10_000_000)),
        }
        for path, pictures in same.items():
            page = get(f"/console/demo/{path}")
            assert page.status_code == 200 and all(
                picture.html in page.text for picture in pictures
            ), path
        for path, reason in (
            ("generations?a=%22%3E%3Cimg%3E", "unknown generation"),
            ("device?type=%3Cimg", "was not sold"),
            ("digits?value=%3Cimg", "must be a decimal"), ("digits?value=inf", "must be finite"),
            ("tpu-v1?bandwidth=-1", "must be above 0"),
            ("tpu-v1?macs=9999999", "at most 1,000,000"),
            ("mxu?numbers=decimal&m=0", "m"), ("mxu?numbers=decimal&m=99999&k=99999", "cycles"),
        ):  # fmt: skip
            refused = get(f"/console/demo/{path}")
            assert (
                refused.status_code == 400 and reason in refused.text and "<img" not in refused.text
            ), path
        assert get("/console/demo/lesson", signed_in=False).headers["location"] == "/login"
        assert get("/console/other/lesson").status_code == 404


@pytest.mark.slow
def test_each_step_of_the_lesson_leads_to_the_next_one(tmp_path: Path) -> None:
    with open_console(tmp_path) as get:
        start = get("/console/demo/lesson").text
        for step in STEPS:
            address = f"/console/demo/{step.address}".replace("&", "&amp;")
            assert f'href="{address}"' in start
            page = get(f"/console/demo/{step.address}")
            if step.path.split("?")[0] not in dict(LESSON_PAGES):
                continue
            assert page.status_code == 200 and f"Step {step.number} of {len(STEPS)}" in page.text
            assert step.number == len(STEPS) or STEPS[step.number].title in page.text
        assert "Step " not in get("/console/demo/mxu?lesson=99").text


@pytest.mark.slow
@pytest.mark.parametrize("path", ["lesson", *(step.path for step in STEPS[:-1])])
def test_a_page_of_the_lesson_is_light_and_has_no_code_in_it(tmp_path: Path, path: str) -> None:
    with open_console(tmp_path) as get:
        page = get(f"/console/demo/{path}").text
        assets = re.findall(r'(?:href|src)="([^"]+\.(?:css|js))"', page)
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", page)
        assert len(gzip.compress(page.encode())) + sum(map(sent_bytes, assets)) < PAGE_BYTES_MAX
