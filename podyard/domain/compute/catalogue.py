"""The offers of a fleet on Compute Engine: places, machine types, accelerator types, disk types."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from podyard.domain.compute.place import ComputePlace, PlaceLevel
from podyard.domain.disk import DISK_TYPES
from podyard.domain.fleet import Fleet, region_of
from podyard.hardware import machine_types
from podyard.hardware.machine_types import MachineType

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class OfferedType:
    """A kind of thing that a zone offers. `description`: in words. `most`: of accelerators, how
    many one instance has at most; of disks, the size in GB without another one."""

    name: str
    zone: str
    description: str
    most: int = 0

    @property
    def place(self) -> ComputePlace:
        return ComputePlace(PlaceLevel.ZONE, self.zone)


@dataclasses.dataclass(frozen=True, slots=True)
class OfferedMachine:
    type: MachineType
    zone: str

    @property
    def name(self) -> str:
        return self.type.name

    @property
    def place(self) -> ComputePlace:
        return ComputePlace(PlaceLevel.ZONE, self.zone)


def regions(fleet: Fleet) -> dict[str, list[str]]:
    """The zones of each region."""
    by_region: dict[str, list[str]] = {}
    for zone in sorted(fleet.zones):
        by_region.setdefault(region_of(zone), []).append(zone)
    return by_region


def machines(fleet: Fleet, zone: str) -> list[OfferedMachine]:
    """Machine types without chips are in every zone; those with chips where their generation is.
    One whose processors or memory nobody has published is not listed, since readers of prices count
    on both numbers."""
    offers = fleet.zone(zone).offers
    return [
        OfferedMachine(row, zone)
        for row in machine_types.all_types().values()
        if row.name not in machine_types.GKE_ONLY
        and None not in (row.cpus, row.memory_mib)
        and (not row.has_chips or row.generation in offers)
    ]


def accelerators(fleet: Fleet, zone: str) -> list[OfferedType]:
    """The accelerator types of the machine types with chips."""
    with_chips = [machine.type for machine in machines(fleet, zone) if machine.type.has_chips]
    # The last one of a name has the most chips.
    largest = {row.accelerator: row for row in sorted(with_chips, key=lambda row: row.chips)}
    return [
        OfferedType(name, zone, f"TPU {row.generation}", row.chips)
        for name, row in sorted(largest.items())
    ]


def disk_types(_fleet: Fleet, zone: str) -> list[OfferedType]:
    return [
        OfferedType(name, zone, _DISK_TEXTS.get(name, name), size)
        for name, size in sorted(DISK_TYPES.items())
    ]


_DISK_TEXTS = {
    "pd-balanced": "Balanced Persistent Disk",
    "pd-ssd": "SSD Persistent Disk",
    "pd-standard": "Standard Persistent Disk",
}


def of_zones(
    fleet: Fleet, zone: str | None, offered: Callable[[Fleet, str], Sequence[T]]
) -> list[T]:
    """The offers of a zone, or (None) of all zones."""
    zones = sorted(fleet.zones) if zone is None else [zone]
    return [item for one in zones for item in offered(fleet, one)]


def number_of(path: str) -> int:
    """The number of what nobody has made, from its path."""
    return int(hashlib.sha256(path.encode()).hexdigest()[:15], 16) + 1
