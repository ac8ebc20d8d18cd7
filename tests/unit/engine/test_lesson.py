"""The pictures of the lesson, as a notebook and as the console shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from podyard import lesson
from podyard.base.errors import PodyardError
from podyard.hardware.generation import GIB
from podyard.hardware.generations import GENERATIONS
from podyard.web.lesson_steps import LESSON_PAGES, STEPS
from tests.unit.engine.pages import Reader, open_console

PAGE_BYTES_MAX = 80_000  # of a page with its style sheets and scripts


def shown(picture: Any) -> Reader:
    """What a notebook gets, after a check that it is well formed and asks for nothing else."""
    html = str(picture._repr_html_())
    assert html.startswith("<style>") and "<script" not in html and " src=" not in html
    for tag in ("div", "svg", "table", "figure", "g"):
        assert html.count(f"<{tag} ") + html.count(f"<{tag}>") == html.count(f"</{tag}>"), tag
    for attributes in re.findall(r"<svg([^>]*)>", html):
        assert 'role="img"' in attributes and "aria-label=" in attributes, "a picture says in words what it shows"
    return Reader(html)


@pytest.mark.parametrize("name", GENERATIONS)
def test_each_generation_has_its_figures_with_sources(name: str) -> None:
    one = GENERATIONS[name]
    page = shown(lesson.sources(name))
    assert f"{one.hbm_bytes / GIB:g} GiB" in page.text and f"{one.mxu_rows} x {one.mxu_columns}" in page.text
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


def test_the_console_shows_the_pictures_of_the_notebook(tmp_path: Path) -> None:
    with open_console(tmp_path) as get:
        same = {"generations?a=v4&b=v6e": (lesson.chips("v4", "v6e"), lesson.sources("v4"), lesson.sources("v6e"))}
        for path, pictures in same.items():
            page = get(f"/console/demo/{path}")
            assert page.status_code == 200 and all(picture.html in page.text for picture in pictures), path
        refused = get("/console/demo/generations?a=%22%3E%3Cimg%3E")
        assert refused.status_code == 400 and "unknown generation" in refused.text and "<img" not in refused.text
        assert get("/console/demo/lesson", signed_in=False).headers["location"] == "/login"
        assert get("/console/other/lesson").status_code == 404


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


@pytest.mark.parametrize("path", [path for path, _ in LESSON_PAGES])
def test_a_page_of_the_lesson_is_light_and_has_no_code_in_it(tmp_path: Path, path: str) -> None:
    with open_console(tmp_path) as get:
        page = get(f"/console/demo/{path}?lesson=1").text
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", page)
        assert len(page) < PAGE_BYTES_MAX, len(page)
