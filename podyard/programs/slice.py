"""The slice that this process is told to be part of, and its devices in the order in which a TPU's runtime has them."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

TYPE_VARIABLE = "PODYARD_TPU"  # accelerator type; "off": the program runs as on a plain machine
SLICE_VARIABLE = "PODYARD_TPU_SLICE"  # the fields of `Slice` as JSON
RUN_VARIABLE = "PODYARD_TPU_RUN"  # the folder that modules and counts are written to
NUMERICS_VARIABLE = "PODYARD_NUMERICS"  # mxu (default) or f32
STRICT_VARIABLE = "PODYARD_STRICT"  # a module that does not fit raises RESOURCE_EXHAUSTED
OFF = "off"
_SLICE_IDS = 100_000  # where the ids of the first of several slices begin, those of the second at twice that, ...


class Slice(NamedTuple):
    """`kind`: what JAX calls the generation. `shape`, `host_shape`: chips of the slice and of one host as x, y, z.
    `hbm_bytes`: what a program has of one device's memory. `worker`: the index of this host."""

    accelerator_type: str
    kind: str
    shape: tuple[int, int, int]
    host_shape: tuple[int, int, int]
    devices_per_chip: int
    hbm_bytes: int
    worker: int = 0
    slice_index: int = 0
    slice_count: int = 1

    @property
    def host_count(self) -> int:
        x, y, z = _hosts(self)
        return x * y * z

    @property
    def devices_per_host(self) -> int:
        x, y, z = self.host_shape
        return x * y * z * self.devices_per_chip


class TpuDevice(NamedTuple):
    id: int
    process_index: int
    coords: tuple[int, int, int]
    core_on_chip: int
    slice_index: int


def from_environment() -> Slice | None:
    """None where no TPU is asked for. Raises ValueError for a text that is not what `to_json` made."""
    text = os.environ.get(SLICE_VARIABLE)
    if not text or os.environ.get(TYPE_VARIABLE, OFF) == OFF:
        return None
    found = json.loads(text)
    return Slice(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def to_json(of: Slice) -> str:
    return json.dumps(of._asdict(), separators=(",", ":"))


def devices_of(of: Slice) -> list[TpuDevice]:
    """All devices of all slices: slice by slice, host by host, x fastest, as libtpu's topologies list them. The ids
    count the chips of a slice row by row instead, so that those of one host are not consecutive on larger slices."""
    found = []
    columns, rows, layers = _hosts(of)
    host_x, host_y, host_z = of.host_shape
    for slice_index in range(of.slice_count):
        first_id = _SLICE_IDS * (slice_index + 1) if of.slice_count > 1 else 0
        for host in range(of.host_count):
            origin = (host % columns, host // columns % rows, host // (columns * rows))
            for chip in range(host_x * host_y * host_z):
                x = origin[0] * host_x + chip % host_x
                y = origin[1] * host_y + chip // host_x % host_y
                z = origin[2] * host_z + chip // (host_x * host_y)
                number = (x + of.shape[0] * (y + of.shape[1] * z)) * of.devices_per_chip
                for core in range(of.devices_per_chip):
                    process = slice_index * of.host_count + host
                    found.append(TpuDevice(first_id + number + core, process, (x, y, z), core, slice_index))
    assert layers * columns * rows == of.host_count
    return found


def _hosts(of: Slice) -> tuple[int, int, int]:
    x, y, z = (extent // per for extent, per in zip(of.shape, of.host_shape, strict=True))
    return x, y, z
