"""The page that a node begins on: room, prices, quota and what nearly fits, as the scheduler and the card say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from podyard.domain.fleet_file import load_fleet
from podyard.web import pages
from tests.yard import Yard, open_yard

ZONES = "us-central1-f: {v2: {shape: 4x4}}, us-central1-c: {v2: {shape: 4x4, usage: [spot]}}, us-central2-b: {v4: {}}"
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
    assert re.search(r"us-central1-f v2-8 4 16 of 16 chips .*\$4\.50 \$1\.35 24 cores of 24 64 GiB 4 × 16", text)
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
    assert "What has room now v2-32, spot in us-central1-c" in text and "v4-32, on-demand in us-central2-b" in text
    assert "v2-8, on-demand in us-central1-f" in text


def test_a_used_up_quota_is_no_room(yard: Yard) -> None:
    for name in ("a", "b", "c"):
        yard.create(name, "v2-8", "us-central1-f")
    text = _page(yard, "?type=v2-8")
    assert "No zone has room for v2-8 now" in text and "0 cores of 24" in text
    assert "The quota in us-central1 has 0 of 24 cores left, and v2-8 takes 8" in text


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
