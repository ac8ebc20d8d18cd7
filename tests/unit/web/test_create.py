"""The page that a node begins on: room, prices, quota and what nearly fits, as the scheduler and
the card say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from podyard.base.contents import Contents
from podyard.control.jobs import sources
from podyard.domain.fleet_file import load_fleet
from podyard.domain.principal import PLATFORM
from podyard.web.front import pages
from tests.yard import Yard, open_yard

ZONES = (
    "us-central1-f: {v2: {shape: 4x4}}, us-central1-c: {v2: {shape: 4x4, usage: [spot]}}, "
    "us-central2-b: {v4: {}}"
)
QUOTAS = "quotas: {overrides: [{limit: 24, generation: v2, usage: on-demand, kind: device}]}"
FLEET = load_fleet(f"{{zones: {{{ZONES}}}, {QUOTAS}}}")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, FLEET, routers=(pages.router,)) as found:
        yield found


def _page(yard: Yard, query: str = "", status: int = 200) -> str:
    answer = yard.call("GET", f"/console/demo/create{query}")
    assert answer.status_code == status, answer.text
    return " ".join(re.sub(r"<[^>]+>", " ", unescape(answer.text)).split())


def test_zones_of_a_type_with_room_price_quota_and_memory(yard: Yard) -> None:
    text = _page(yard, "?type=v2-8")
    assert "1 of 1 zone has room for v2-8 now" in text, "the other one sells spot only"
    assert re.search(
        r"us-central1-f v2-8 4 16 of 16 chips .*\$4\.50 \$1\.35 24 cores of 24 64 GiB 4 × 16", text
    )
    yard.create("a", "v2-8", "us-central1-f")
    yard.create("b", "v2-8", "us-central1-f")
    text = _page(yard, "?type=v2-8")
    assert re.search(r"us-central1-f v2-8 2 8 of 16 chips .* 8 cores of 24", text)
    assert "2 of 2 zones have room" in _page(yard, "?type=v2-8&usage=spot")


def test_no_room_says_why_and_what_has_room(yard: Yard) -> None:
    yard.create("a", "v2-8", "us-central1-f")
    text = _page(yard, "?type=v2-32")
    assert "No zone has room for v2-32 now" in text
    assert "v2-32 needs a free box of 4x4 chips in one pod of us-central1-f" in text
    assert (
        "What has room now v2-32, spot in us-central1-c" in text
        and "v4-32, on-demand in us-central2-b" in text
    )
    assert "v2-8, on-demand in us-central1-f" in text
    html = unescape(yard.call("GET", "/console/demo/create?type=v2-32").text)
    link = re.findall(
        r'href="([^"]+/queue/resources/new[^"]+)" aria-label="Queue v2-32 in us-central1-f"', html
    )
    form = yard.call("GET", link[0]).text
    assert '<option value="v2-32" selected' in form, "a request that waits, filled in"


def test_a_used_up_quota_is_no_room(yard: Yard) -> None:
    for name in ("a", "b", "c"):
        yard.create(name, "v2-8", "us-central1-f")
    text = _page(yard, "?type=v2-8")
    assert "No zone has room for v2-8 now" in text and "0 cores of 24" in text
    assert "The quota in us-central1 has 0 of 24 cores left, and v2-8 takes 8" in text


@pytest.mark.slow
def test_chips_of_any_generation_and_what_is_wrong(yard: Yard) -> None:
    text = _page(yard, "?chips=16")
    assert "us-central1-f v2-32" in text and "us-central2-b v4-32" in text
    assert "the nearest that do are v2-8" in _page(yard, "?type=v2-9", 400)
    assert "Number of chips is 'x'" in _page(yard, "?chips=x", 400)
    assert "No zone offers v5p-8 as on-demand" in _page(yard, "?type=v5p-8")


def test_the_commands_are_those_of_the_zone(yard: Yard) -> None:
    text = _page(yard, "?type=v2-8&usage=spot&zone=us-central1-c")
    assert "The same by command, in us-central1-c" in text
    assert "--zone=us-central1-c" in text and "--spot" in text


MODULE = """module @double {
  func.func public @main(%arg0: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<1024x1024xf32>
    return %0 : tensor<1024x1024xf32>
  }
}
"""


def _upload(yard: Yard, name: str, data: bytes) -> str:
    """The gs:// name of an object of the project's bucket."""
    incoming = Contents(yard.data / "contents").incoming(1 << 20)
    incoming.write(data)
    content = incoming.store()
    return yard.database.run(lambda uow: sources.keep(uow, PLATFORM, "demo", name, content))


@pytest.mark.slow
def test_steps_of_a_recipe_a_job_and_a_module(yard: Yard) -> None:
    yard.create("n", "v2-8", "us-central1-f")
    body = {
        "recipe": "digits-cnn",
        "globalBatch": 64,
        "node": "n",
        "execution": "simulated",
        "stepSeconds": 1000,
    }
    yard.ok("POST", f"{yard.jobs()}?jobId=mine", {**body, "steps": 5})
    text = _page(yard, "?type=v2-8&recipe=digits-cnn&batch=64")
    step = re.findall(r"([\d.]+ [mu]s) [\d.]+ MiB of 7.48 GiB per core", text)
    assert len(step) == 1, text
    assert "mine (digits-cnn, batch 64)" in text, "offered among the programs"
    assert step[0] in _page(yard, "?type=v2-8&recipe=us-central1-f/mine"), (
        "a job takes as long as its recipe"
    )
    module, other = (
        _upload(yard, "step.py", MODULE.encode()),
        _upload(yard, "other.py", b"\xff\xfe"),
    )
    assert re.search(
        r"[\d.]+ us [\d.]+ MiB of 7.48 GiB per core", _page(yard, f"?type=v2-8&module={module}")
    )
    assert "is not StableHLO text" in _page(yard, f"?type=v2-8&module={other}")
    assert "must be gs://BUCKET/NAME" in _page(yard, "?type=v2-8&module=step.mlir", 400)
    assert "unknown recipe 'none'" in _page(yard, "?type=v2-8&recipe=none")


TOKENS = """module @jit_step {
  func.func public @main(%w: tensor<1024x1024xbf16>, %ids: tensor<16x512xi32>) -> (tensor<1024x1024xbf16>, tensor<16x512xi32>) {
    %0 = stablehlo.dot_general %w, %w, contracting_dims = [1] x [0] : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    return %0, %ids : tensor<1024x1024xbf16>, tensor<16x512xi32>
  }
}
"""  # noqa: E501


@pytest.mark.slow
def test_a_whole_run_has_the_rows_of_podyard_run(yard: Yard) -> None:
    module = _upload(yard, "step.py", TOKENS.encode())
    text = _page(yard, f"?type=v2-8&module={module}&tokens=1e12")
    assert "A run of 1,000,000,000,000 tokens" in text
    row = re.search(
        r"v2-8 (\S+) fits \([\d.]+ \w+ of 7.5 GiB\) [\d.]+ us – [\d.]+ % [\d.]+ % 65,536 "
        r"[\d,.]+ \$[\d,.]+ \$[\d,.]+",
        text,
    )
    assert row is not None, text
    named = _page(yard, f"?type=v2-8&module={module}&tokens=1e12&tokens_per_step=1000")
    assert re.search(r"% 1,000 [\d,.]+ \$", named)
    recipe = _page(yard, "?type=v2-8&recipe=digits-cnn&batch=64&tokens=1e9")
    assert re.search(r"% [\d.]+ % – – – –", recipe), "a recipe has no tokens"
    assert "is not a number of tokens" in _page(yard, "?type=v2-8&tokens=many", 400)
    assert "must be at least 1" in _page(yard, "?type=v2-8&tokens_per_step=0", 400)


@pytest.mark.slow
def test_a_program_that_does_not_fit_is_led_to_where_it_does(yard: Yard) -> None:
    text = _page(yard, "?type=v2-8&recipe=transformer-lm&batch=32")
    assert re.search(
        r"transformer-lm does not fit on v2-8: a step needs [\d.]+ GiB per core, and "
        r"7.48 GiB can be",
        text,
    )
    assert "Where it fits v2-32, on-demand in us-central1-f" in text and "a step" in text
