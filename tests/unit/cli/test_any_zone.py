"""Commands find the zone of what they name, and one that offers the type that they ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.cli.cli_yard import podyard
from tests.unit.cli.golden_yard import EUROPE, open_golden_yard
from tests.yard import ZONE, Yard

FAR = "a-name-that-people-copy-and-that-is-never-cut-off"  # in Europe
BOTH = "in-two-zones"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_golden_yard(tmp_path_factory.mktemp("zones")) as yard:
        yard.create(BOTH)
        yard.create(BOTH, "v3-8", EUROPE)
        europe = f"projects/demo/locations/{EUROPE}"
        yard.ok(
            "POST",
            f"/podyard/v1/{europe}/reservations?reservationId=far-lab",
            {"generation": "v3", "size": 4},
        )
        yard.ok("POST", "/podyard/v1/clock:advance", {"duration": "90s"})
        yard.step()
        yield yard


@pytest.mark.parametrize(
    "line",
    [
        f"tpu describe {FAR}",
        f"tpu hosts {FAR}",
        f"tpu env {FAR}",
        f"tpu programs {FAR}",
        f"tpu schedule-maintenance {FAR} --start 2030-01-31T09:00:00Z --end 2030-01-31T10:00:00Z",
        "sweep describe rates",
        "qr describe wish",
        f"job submit on-far --recipe digits-cnn --node {FAR} --steps 10 --global-batch 256",
        "reservation delete far-lab --quiet",
    ],
)
def test_a_name_is_looked_up_in_every_zone(world: Yard, line: str) -> None:
    answer = podyard(world, line)
    assert answer.code == 0, answer.text


@pytest.mark.parametrize("verb", ["describe", "hosts", "programs", "delete --quiet"])
def test_a_name_in_several_zones_is_an_error_that_lists_them(world: Yard, verb: str) -> None:
    command, _, option = verb.partition(" ")
    answer = podyard(world, f"tpu {command} {BOTH} {option}")
    assert answer.code == 1
    for text in (BOTH, EUROPE, ZONE, "--zone"):
        assert text in answer.err
    assert podyard(world, f"tpu describe {BOTH} --zone {EUROPE}").out.count("v3-8") == 1
    assert "v3-8" in podyard(world, f"tpu describe {BOTH}", PODYARD_LOCATION=EUROPE).out


def test_a_name_in_no_zone_names_the_nearest_and_the_list(world: Yard) -> None:
    answer = podyard(world, "tpu describe podd")
    assert answer.code == 1
    assert "'podd'" in answer.err and "'pod'" in answer.err and "podyard nodes" in answer.err
    assert "podyard sweep list" in podyard(world, "sweep describe nothing").err
    assert "podyard qr list" in podyard(world, "qr describe nothing").err


def test_a_job_takes_a_zone_that_offers_the_type_of_its_node(world: Yard) -> None:
    line = "job submit far-job --recipe digits-cnn --accelerator-type v3-8 --steps 10"
    answer = podyard(world, f"{line} --dry-run")
    assert answer.code == 0, answer.text
    assert f"{ZONE} does not offer v3-8: using zone {EUROPE}" in answer.err
    answer = podyard(world, f"{line} --dry-run", PODYARD_LOCATION=ZONE)  # as `podyard env` sets it
    assert answer.code == 0 and f"using zone {EUROPE}" in answer.err, answer.text
    named = podyard(world, f"{line} --dry-run --zone {ZONE}")
    assert named.code == 1 and "using zone" not in named.err


def test_a_node_needs_neither_zone_nor_version(world: Yard) -> None:
    answer = podyard(world, "tpu create without-version --accelerator-type v3-8 --async")
    assert answer.code == 0, answer.text
    world.step()
    shown = podyard(world, "tpu describe without-version").out
    assert EUROPE in shown and "runtimeVersion: tpu-ubuntu2204-base" in shown
    line = "qr create later --node-id later-node --accelerator-type v3-8"
    assert podyard(world, line).code == 0
    assert EUROPE in podyard(world, "qr describe later").out


def test_a_type_that_no_zone_offers_is_refused_by_name(world: Yard) -> None:
    answer = podyard(world, "tpu create wrong --accelerator-type v9-8 --async")
    assert answer.code == 1
    assert "v9-8" in answer.err
