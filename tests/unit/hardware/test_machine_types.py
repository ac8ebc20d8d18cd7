"""Machine types: rows by rule, and the slices that their hosts make."""

from __future__ import annotations

import pytest

from podyard.base.errors import PodyardError
from podyard.hardware import machine_types
from podyard.hardware.accelerator_types import kind_of
from podyard.hardware.topology import NO_TOPOLOGY


@pytest.mark.parametrize(
    ("name", "cpus", "memory_mib"),
    [
        ("e2-standard-4", 4, 16384),
        ("e2-micro", 2, 1024),
        ("n1-standard-1", 1, 3840),
        ("n1-highmem-2", 2, 13312),
        ("n2-standard-8", 8, 32768),
        ("c2-standard-60", 60, 245760),
        ("ct5p-hightpu-4t", 208, 458752),
        ("ct6e-standard-1t", None, None),
        ("tpu7x-standard-4t", 224, 983040),
    ],
)
def test_processors_and_memory_follow_from_the_family(
    name: str, cpus: int | None, memory_mib: int | None
) -> None:
    machine = machine_types.all_types()[name]
    assert (machine.cpus, machine.memory_mib) == (cpus, memory_mib)


def test_a_host_alone_is_the_slice_of_its_chips() -> None:
    kinds = {
        name: (machine.kind().name, machine.kind().topology.text)
        for name, machine in machine_types.all_types().items()
        if machine.has_chips
    }
    assert kinds["ct5lp-hightpu-8t"] == ("v5litepod-8", "2x4")
    assert kinds["ct6e-standard-4t"] == ("v6e-4", "2x2")
    assert kinds["ct5p-hightpu-4t"] == ("v5p-8", "2x2x1")
    assert all(machine.kind().host_count == 1 for machine in machine_types.all_types().values()
               if machine.has_chips)  # fmt: skip


def test_eight_chips_are_two_hosts_of_four() -> None:
    kind = machine_types.all_types()["ct6e-standard-4t"].kind("2x4")
    assert (kind.host_count, kind.chips_per_host, kind.host_bounds) == (2, 4, "1,2,1")
    assert kind_of("v6e-8", "2x4", 2) == kind
    assert machine_types.of_kind(kind) is machine_types.find("ct6e-standard-4t")


@pytest.mark.parametrize(
    ("name", "topology"),
    [("ct6e-standard-8t", "4x4"), ("ct6e-standard-4t", "1x1"), ("ct5lp-hightpu-1t", "2x2")],
)
def test_a_topology_that_the_hosts_cannot_make_is_refused(name: str, topology: str) -> None:
    machine = machine_types.all_types()[name]
    with pytest.raises(PodyardError, match=f"cannot be made of hosts of {name}"):
        machine.kind(topology)


def test_a_machine_without_chips_is_a_kind_of_one_host() -> None:
    kind = kind_of("n2-standard-8", NO_TOPOLOGY)
    assert (kind.chip_count, kind.host_count, kind.chips_per_host) == (0, 1, 0)
    assert kind.topology.text == NO_TOPOLOGY
