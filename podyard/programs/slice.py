"""The slice that this process is told to be part of, and its devices in the order in which a TPU's
runtime has them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.hardware.generation import Generation
from podyard.hardware.process_bounds import Bounds, process_bounds

TYPE_VARIABLE = "PODYARD_TPU"  # accelerator type; "off": the program runs as on a plain machine
RUN_VARIABLE = "PODYARD_TPU_RUN"  # the folder that modules and counts are written to
NUMERICS_VARIABLE = "PODYARD_NUMERICS"  # mxu (default) or f32
STRICT_VARIABLE = "PODYARD_STRICT"  # 1: a module that does not fit raises RESOURCE_EXHAUSTED
LENIENT_VARIABLE = "PODYARD_LENIENT"  # 1: a program that a TPU rejects goes on, with a warning
DRY_RUN_VARIABLE = "PODYARD_DRY_RUN"  # runs of the training step, of which none is computed
STEP_VARIABLE = "PODYARD_STEP"  # name of the training step; empty: by the rule of training_step.py
# the replica of a job that starts a program, in the environment of all that it starts; empty: none
PROGRAM_VARIABLE = "PODYARD_PROGRAM"
OFF = "off"
# where the ids of the first of several slices begin; those of the second begin at twice that
_SLICE_IDS = 100_000


class Slice(NamedTuple):
    """`hosts`, `host_shape`: processes of the slice and chips of each, as x, y, z. `worker`: the
    index of this one."""

    generation: Generation
    hosts: Bounds
    host_shape: Bounds
    worker: int
    slice_index: int = 0
    slice_count: int = 1

    @property
    def process_count(self) -> int:
        return math.prod(self.hosts) * self.slice_count

    @property
    def process_index(self) -> int:
        return self.slice_index * math.prod(self.hosts) + self.worker

    @property
    def devices_per_process(self) -> int:
        return math.prod(self.host_shape) * self.generation.devices_per_chip

    @property
    def shape(self) -> Bounds:
        x, y, z = (
            count * extent for count, extent in zip(self.hosts, self.host_shape, strict=True)
        )
        return x, y, z


class TpuDevice(NamedTuple):
    """A device as a program sees it. `number`, `host`: within its slice. `slice_index` is None
    where there is one slice only."""

    number: int
    host: int
    process_index: int
    coords: Bounds
    core_on_chip: int
    device_kind: str
    slice_index: int | None
    num_cores: int

    @property
    def id(self) -> int:
        return (
            self.number
            if self.slice_index is None
            else self.number + _SLICE_IDS * (self.slice_index + 1)
        )

    @property
    def long_text(self) -> str:
        place = (
            f"process_index={self.host}, coords={self._coords_text}, "
            f"core_on_chip={self.core_on_chip}"
        )
        return self._in_slice(f"TpuDevice(id={self.number}, {place})")

    @property
    def short_text(self) -> str:
        coords = self._coords_text.replace(")", f",{self.core_on_chip})")
        return self._in_slice(f"TPU_{self.number}(process={self.host},{coords})")

    @property
    def hbm_text(self) -> str:
        """The name that XLA's errors give to its memory."""
        x, y, z = self.coords
        return f"{x}x{y}x{z}_HBM{self.core_on_chip}"

    @property
    def _coords_text(self) -> str:
        return "({},{},{})".format(*self.coords)

    def _in_slice(self, text: str) -> str:
        if self.slice_index is None:
            return text
        return f"MegaScalePjRtDevice(wrapped={text}, slice_id={self.slice_index})"


def own_kind(environ: Mapping[str, str] = os.environ) -> AcceleratorType:
    """Return the type that is asked for. Raises PodyardError for an unknown one."""
    return kind_of(environ.get(TYPE_VARIABLE, OFF), environ.get("TPU_TOPOLOGY", ""))


def from_environment(environ: Mapping[str, str] = os.environ) -> Slice | None:
    """None where no TPU is asked for. The shape comes from the variables that libtpu reads, so that
    a program that
    asks for a part of the slice gets it. Raises PodyardError for an unknown type, ValueError for
    bounds that are none, and chips that are not there.
    """
    name = environ.get(TYPE_VARIABLE, OFF)
    if name == OFF or not name:
        return None
    kind = own_kind(environ)
    hosts, host_shape = process_bounds(environ, kind)
    worker = int(environ.get("CLOUD_TPU_TASK_ID") or environ.get("TPU_WORKER_ID") or 0)
    return Slice(
        kind.generation, hosts, host_shape, worker if math.prod(hosts) > 1 else 0,
        int(environ.get("MEGASCALE_SLICE_ID") or 0), int(environ.get("MEGASCALE_NUM_SLICES") or 1),
    )  # fmt: skip


def devices_of(of: Slice) -> list[TpuDevice]:
    """All devices of all slices: slice by slice, host by host, x fastest, as libtpu's topologies
    list them. The ids count the chips of a slice row by row instead, so that those of one host are
    not consecutive on larger slices."""
    found = []
    columns, rows, _ = of.hosts
    host_x, host_y, _ = of.host_shape
    per_chip = of.generation.devices_per_chip
    for process in range(of.process_count):
        slice_index, host = divmod(process, math.prod(of.hosts))
        for chip in range(math.prod(of.host_shape)):
            x = host % columns * host_x + chip % host_x
            y = host // columns % rows * host_y + chip // host_x % host_y
            z = host // (columns * rows) * of.host_shape[2] + chip // (host_x * host_y)
            number = (x + of.shape[0] * (y + of.shape[1] * z)) * per_chip
            for core in range(per_chip):
                own_slice = slice_index if of.slice_count > 1 else None
                kind = of.generation.device_kind
                cores = of.generation.cores_per_chip // per_chip
                found.append(
                    TpuDevice(number + core, host, process, (x, y, z), core, kind, own_slice, cores)
                )
    return found
