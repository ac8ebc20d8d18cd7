"""Options, filters and columns that are the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from tests.unit.cli.cli_yard import podyard
from tests.unit.cli.command_walk import walk
from tests.unit.cli.golden_yard import EUROPE, open_golden_yard
from tests.yard import Yard

CONFIRMATION = "Skip confirmation."


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_golden_yard(tmp_path_factory.mktemp("coherence")) as yard:
        yield yard


def test_yes_and_quiet_both_skip_a_confirmation() -> None:
    for path, command in walk():
        for option in command.params:
            if isinstance(option, click.Option) and option.help == CONFIRMATION and path != "down":
                assert {"--yes", "-y", "--quiet", "-q"} <= set(option.opts), path


@pytest.mark.parametrize(
    ("name", "teraflops", "memory"),
    [("v2-8", 180, 64), ("v3-8", 420, 128), ("v2-512", 11_520, 4096), ("v4-8", 1100, 128)],
)
def test_a_type_has_the_published_figures_of_its_device(
    world: Yard, name: str, teraflops: float, memory: int
) -> None:
    device = json.loads(podyard(world, f"hardware show {name} -o json").out)["device"]
    assert device["bf16_teraflops"] == teraflops
    assert device["hbm_gib"] == memory
    assert device["bf16_teraflops_source"] and device["hbm_gib_source"]


@pytest.mark.parametrize("line", ["jobs --filter state=={}", "jobs --filter 'state = {}'"])
def test_two_equal_signs_mean_one(world: Yard, line: str) -> None:
    assert "trains" in podyard(world, line.format("RUNNING")).out
    assert "trains" not in podyard(world, line.format("FAILED")).out


def test_nodes_have_price_and_cost_and_are_sorted_by_them(world: Yard) -> None:
    wide = podyard(world, "nodes -o wide").out.splitlines()
    assert {"PER_HOUR", "COST"} <= set(wide[0].split())
    assert sum("$4.50" in line for line in wide) == 1, wide
    down = podyard(world, "nodes --sort-by=-cost -o name").out.split()
    assert down == podyard(world, "nodes --sort-by ~cost -o name").out.split()
    assert down[0] == podyard(world, f"nodes --zone {EUROPE} -o name").out.split()[0]
    assert down[::-1] == podyard(world, "nodes --sort-by cost -o name").out.split()
