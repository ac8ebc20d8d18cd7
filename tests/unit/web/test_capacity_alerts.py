"""The overview says where nothing is free for what waits, and what could never fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from podyard.db.compute.hosts import NodeModule
from podyard.domain.fleet_file import load_fleet
from podyard.domain.ran_module import RanModule
from podyard.web.front import pages
from podyard.web.nodes.capacity_alerts import misfits
from tests.yard import ZONE, Yard, open_yard

FLEET = load_fleet(f"zones: {{{ZONE}: {{v2: {{shape: 4x4}}}}}}")  # four v2-8 or one v2-32


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, FLEET, routers=(pages.router,)) as found:
        yield found


def _queue(yard: Yard, name: str, kind: str, count: int) -> None:
    node = {
        "zone": ZONE,
        "accelerator_type": kind,
        "usage": "spot",
        "runtime_version": "tpu-vm-base",
    }
    fields = {"name": name, "count": str(count), **node}
    assert yard.http.post("/console/demo/queue/resources/new", data=fields).status_code == 303
    yard.step()


def _alerts(yard: Yard) -> str:
    html = yard.call("GET", "/console/demo/overview").text
    found = re.search(r'<ul class="alerts".*?</ul>', html, re.DOTALL)
    return unescape(found[0]) if found else ""


def test_a_stockout_says_who_waits_and_leads_to_what_has_room(yard: Yard) -> None:
    yard.create("held", "v2-8", ZONE)
    assert _alerts(yard) == ""
    _queue(yard, "whole-1", "v2-32", 1)
    _queue(yard, "whole-2", "v2-32", 1)
    text = _alerts(yard)
    assert f"No room for v2-32 in {ZONE}" in text and "2 wait." in text
    assert f"v2-32 needs a free box of 4x4 chips in one pod of {ZONE}" in text
    assert "/console/demo/create?type=v2-32" in text


def test_what_not_even_empty_pods_could_hold_does_not_fit(yard: Yard) -> None:
    _queue(yard, "five", "v2-8", 5)
    text = _alerts(yard)
    assert f"five does not fit in {ZONE}" in text and "even empty pods could not hold it" in text
    assert "No room" not in text


def test_a_program_that_needs_too_much_memory_leads_to_its_node() -> None:
    module = RanModule("jit_step", 3, None, 0.1, 0.0, False, "does not fit: 21 GiB of 15.5 GiB", "")
    (alert,) = misfits([], [NodeModule(f"projects/demo/locations/{ZONE}/nodes/n", module)], "demo")
    assert alert == ("jit_step does not fit on n", module.verdict, f"/console/demo/nodes/{ZONE}/n")
