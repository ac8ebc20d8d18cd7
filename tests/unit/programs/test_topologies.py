"""Topologies are those that libtpu lists, by the names that callers give them."""

from __future__ import annotations

import pytest

from podyard.programs.slice import devices_of
from podyard.programs.topology.description import kind_of_topology, slice_of_topology
from tests.unit.programs.test_slice import ORDERS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v5e:4x4", "v5litepod-16"),
        ("v5litepod:4x4x1", "v5litepod-16"),
        ("v5e-16", "v5litepod-16"),
        ("v5p:2x2x1", "v5p-8"),
        ("v5:4x4x4", "v5p-128"),
        ("v4:2x2x2", "v4-16"),
        ("V6E:16x16", "v6e-256"),
        ("v4:4x4x8_twisted", "v4-256"),
        ("v3:4x4", "v3-32"),
        ("v2-8", "v2-8"),
    ],
)
def test_a_topology_has_the_type_of_its_name(name: str, kind: str) -> None:
    assert kind_of_topology(name).name == kind


@pytest.mark.parametrize("name", ORDERS)
def test_a_topology_has_the_devices_that_libtpu_lists(name: str) -> None:
    text, _, slices = name.partition(" x ")
    kind = kind_of_topology(text)
    devices = devices_of(slice_of_topology(kind, num_slices=int(slices or 1)))
    assert [
        [one.id, one.process_index, list(one.coords), one.core_on_chip] for one in devices
    ] == ORDERS[name]["devices"]


def test_hosts_of_a_topology_are_as_large_as_the_caller_says() -> None:
    kind = kind_of_topology("v6e:2x4")
    of = slice_of_topology(kind, chips_per_host_bounds=[2, 2, 1], chip_config_name="default")
    assert (of.hosts, of.host_shape) == ((1, 2, 1), (2, 2, 1))
    assert slice_of_topology(kind).hosts == (1, 1, 1)


def test_cores_of_two_devices_cannot_be_one() -> None:
    with pytest.raises(ValueError, match="unknown chip_config_name 'megacore' for v3-8"):
        slice_of_topology(kind_of_topology("v3-8"), chip_config_name="megacore")
