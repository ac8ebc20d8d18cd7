"""The devices of a slice are those that libtpu lists, in its order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from podyard.domain.host import slice_environment
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


def _host(name: str) -> dict[str, str]:
    """The environment of the first host of a node."""
    kind = parse(name)
    addresses = [f"10.0.0.{number}" for number in range(kind.host_count)]
    return slice_environment(kind, 0, addresses, 8476, None)


@pytest.mark.parametrize(
    ("name", "choice", "devices"),
    [
        # the names that Ray sets for a task with one chip and with two
        (
            "v4-8",
            {"TPU_VISIBLE_CHIPS": "2", "TPU_CHIPS_PER_HOST_BOUNDS": "1,1,1",
             "TPU_HOST_BOUNDS": "1,1,1"},
            1,
        ),
        (
            "v5litepod-8",
            {"TPU_VISIBLE_CHIPS": "0,1", "TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1",
             "TPU_HOST_BOUNDS": "1,1,1"},
            2,
        ),
        # the names of JAX's users; a chip of v3 has two devices
        (
            "v3-8",
            {"TPU_VISIBLE_DEVICES": "3", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
             "TPU_PROCESS_BOUNDS": "1,1,1"},
            2,
        ),
        ("v6e-8", {"TPU_VISIBLE_CHIPS": "0,1,2,3"}, 4),
        ("v6e-4", {"TPU_VISIBLE_DEVICES": "1"}, 1),
        ("v4-16", {"TPU_HOST_BOUNDS": "1,1,1"}, 4),  # one host of a slice, alone
        ("v5litepod-4", {}, 4),
    ],
)  # fmt: skip
def test_a_process_on_a_host_gets_the_chips_that_it_asks_for(
    name: str, choice: dict[str, str], devices: int
) -> None:
    found = from_environment(_host(name) | choice)
    assert found is not None
    assert (found.process_count, found.devices_per_process) == (1, devices)
    assert [one.id for one in devices_of(found)] == list(range(devices))


def test_processes_of_one_host_form_a_slice() -> None:
    bounds = {"TPU_PROCESS_BOUNDS": "2,2,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}
    for task in range(4):
        own = {"TPU_VISIBLE_CHIPS": str(task), "CLOUD_TPU_TASK_ID": str(task)}
        found = from_environment(_host("v4-8") | bounds | own)
        assert found is not None
        assert (found.process_index, found.process_count, found.devices_per_process) == (task, 4, 1)
        assert [one.coords for one in devices_of(found)][task] == (task % 2, task // 2, 0)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"TPU_VISIBLE_CHIPS": "4"}, "different numbers from 0,1,2,3"),
        ({"TPU_VISIBLE_CHIPS": "0,0"}, "different numbers from 0,1,2,3"),
        ({"TPU_VISIBLE_CHIPS": "first"}, "different numbers from 0,1,2,3"),
        ({"TPU_VISIBLE_CHIPS": "0,1,2"}, "names 3 chips"),
        (
            {"TPU_VISIBLE_CHIPS": "0,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"},
            "TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1 has 1",
        ),
    ],
)
def test_chips_that_a_host_does_not_have_are_rejected(choice: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_environment(_host("v4-8") | choice)


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
