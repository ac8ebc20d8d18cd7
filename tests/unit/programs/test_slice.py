"""The devices of a slice are those that libtpu lists, in its order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from podyard.hardware.accelerator_types import parse
from podyard.programs.slice import devices_of, from_environment

# libtpu 0.0.42.1: jax.experimental.topologies.get_topology_desc, `.devices`.
ORDERS: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "tpu_device_orders.json").read_text()
)


@pytest.mark.parametrize("name", ORDERS)
def test_devices_have_the_ids_and_places_that_libtpu_gives_them(name: str) -> None:
    kind, _, slices = name.partition(" x ")
    environ = {"PODYARD_TPU": kind} | (
        {"MEGASCALE_NUM_SLICES": slices, "MEGASCALE_SLICE_ID": "0"} if slices else {}
    )
    found = from_environment(environ)
    assert found is not None
    devices, wanted = devices_of(found), ORDERS[name]
    assert [
        [one.id, one.process_index, list(one.coords), one.core_on_chip] for one in devices
    ] == wanted["devices"]
    assert {one.device_kind for one in devices} == {wanted["kind"]}
    assert (devices[0].long_text, devices[-1].long_text) == (wanted["first"], wanted["last"])
    assert devices[-1].short_text == wanted["last_short"]


def test_a_program_that_asks_for_one_chip_gets_one_chip() -> None:
    bounds = {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}
    found = from_environment({"PODYARD_TPU": "v4-8"} | bounds)
    assert found is not None
    assert len(devices_of(found)) == found.devices_per_process == 1


def test_each_host_of_a_slice_finds_its_own_place() -> None:
    kind = parse("v5p-64")
    for worker in range(kind.host_count):
        found = from_environment({"PODYARD_TPU": "v5p-64", "TPU_WORKER_ID": str(worker)})
        assert found is not None
        assert (found.process_index, found.process_count, found.devices_per_process) == (
            worker,
            8,
            4,
        )


@pytest.mark.parametrize("value", ["", "off"])
def test_a_tpu_can_be_switched_off(value: str) -> None:
    assert from_environment({"PODYARD_TPU": value}) is None
    assert from_environment({}) is None


@pytest.mark.parametrize("bounds", ["2,2", "0,1,1", "a,b,c"])
def test_bounds_that_are_none_are_refused(bounds: str) -> None:
    with pytest.raises(ValueError, match=r"bounds of a TPU|invalid literal"):
        from_environment({"PODYARD_TPU": "v3-8", "TPU_PROCESS_BOUNDS": bounds})
