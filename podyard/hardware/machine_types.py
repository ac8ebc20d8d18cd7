"""Machine types of Compute Engine: processors, memory, and the TPU chips of those that have some.

A machine type with chips is one host of a slice: with 4 chips a host of any slice of its
generation, with 1 or 8 chips a host alone. Older machine types with chips (ct3, ct4p) exist on GKE
only. Unknown processors and memory are None. Rows follow from families: a family has a rule
(GB of memory for each processor) and the processor counts that are offered.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

from podyard.base.errors import invalid
from podyard.hardware.accelerator_types import (
    CHIPS_PER_HOST,
    AcceleratorType,
    kind_of,
    legal_shapes,
    parse,
)
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.topology import NO_TOPOLOGY, Shape, shape_text

MIB_PER_GB = 1024
SHAPES_NAMED_MAX = 8  # in the message of a wrong topology

_GENERAL = "cloud.google.com/compute/docs/general-purpose-machines, from memory"
_OPTIMIZED = "cloud.google.com/compute/docs/compute-optimized-machines, from memory"


@dataclasses.dataclass(frozen=True, slots=True)
class MachineType:
    """One machine type. `generation` and `chips`: of its TPU, empty and 0 without one. `source`:
    of processors and memory."""

    name: str
    cpus: int | None
    memory_mib: int | None
    source: str
    generation: str = ""
    chips: int = 0
    shared_cpu: bool = False

    @property
    def has_chips(self) -> bool:
        return self.chips > 0

    @property
    def family(self) -> str:
        """The series, such as `n2` or `ct6e`."""
        return self.name.partition("-")[0]

    @property
    def accelerator(self) -> str:
        """The name of its acceleratorTypes resource, such as `ct6e`."""
        return self.family if self.has_chips else ""

    @property
    def description(self) -> str:
        cpus = "-" if self.cpus is None else str(self.cpus)
        memory = "-" if self.memory_mib is None else f"{self.memory_mib / MIB_PER_GB:g}"
        chips = f", {self.chips} TPU {self.generation} chips" if self.has_chips else ""
        return f"{cpus} vCPUs, {memory} GB RAM{chips}"

    @property
    def default_topology(self) -> str:
        """The shape of one host alone."""
        shapes = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
        return shape_text(shapes[self.chips][: GENERATIONS[self.generation].dimensions])

    def kind(self, topology: str = "") -> AcceleratorType:
        """The slice of hosts of this type; an empty topology: one host alone. Eight chips in two
        dimensions are one host on the TPU API, and two hosts of four chips here. Raises
        INVALID_ARGUMENT for a topology that its hosts cannot make."""
        generation = GENERATIONS[self.generation]
        kind = kind_of(f"{generation.name_prefix}-", topology or self.default_topology)
        if not self._makes(kind.topology.shape):
            offered = filter(self._makes, legal_shapes(generation))
            some = ", ".join(map(shape_text, list(offered)[:SHAPES_NAMED_MAX]))
            raise invalid(
                f"accelerator topology {kind.topology.text} cannot be made of hosts of "
                f"{self.name}, which have {self.chips} chips: use one of {some}",
                "acceleratorTopology",
            )
        return dataclasses.replace(kind, host_count=kind.chip_count // self.chips)

    def _makes(self, shape: Shape) -> bool:
        chips = math.prod(shape)
        return chips == self.chips or (self.chips == CHIPS_PER_HOST and chips > self.chips)


@dataclasses.dataclass(frozen=True, slots=True)
class _Family:
    """Machine types `PREFIX-N` for each N of `cpus`, with `gb` GB of memory for each processor."""

    prefix: str
    gb: float
    cpus: str
    source: str


_FAMILIES = (
    _Family("e2-standard", 4, "2 4 8 16 32", _GENERAL),
    _Family("e2-highmem", 8, "2 4 8 16", _GENERAL),
    _Family("e2-highcpu", 1, "2 4 8 16 32", _GENERAL),
    _Family("n1-standard", 3.75, "1 2 4 8 16 32 64 96", _GENERAL),
    _Family("n1-highmem", 6.5, "2 4 8 16 32 64 96", _GENERAL),
    _Family("n1-highcpu", 0.9, "2 4 8 16 32 64 96", _GENERAL),
    _Family("n2-standard", 4, "2 4 8 16 32 48 64 80 96 128", _GENERAL),
    _Family("n2-highmem", 8, "2 4 8 16 32 48 64 80 96", _GENERAL),
    _Family("n2-highcpu", 1, "2 4 8 16 32 48 64 80 96", _GENERAL),
    _Family("n2d-standard", 4, "2 4 8 16 32 48 64 80 96 128 224", _GENERAL),
    _Family("n2d-highmem", 8, "2 4 8 16 32 48 64 80 96", _GENERAL),
    _Family("n2d-highcpu", 1, "2 4 8 16 32 48 64 80 96 128 224", _GENERAL),
    _Family("n4-standard", 4, "2 4 8 16 32 48 64 80", _GENERAL),
    _Family("n4-highmem", 8, "2 4 8 16 32 48 64 80", _GENERAL),
    _Family("n4-highcpu", 2, "2 4 8 16 32 48 64 80", _GENERAL),
    _Family("t2d-standard", 4, "1 2 4 8 16 32 48 60", _GENERAL),
    _Family("c2-standard", 4, "4 8 16 30 60", _OPTIMIZED),
    _Family("c2d-standard", 4, "2 4 8 16 32 56 112", _OPTIMIZED),
    _Family("c2d-highmem", 8, "2 4 8 16 32 56 112", _OPTIMIZED),
    _Family("c2d-highcpu", 2, "2 4 8 16 32 56 112", _OPTIMIZED),
    _Family("c3-standard", 4, "4 8 22 44 88 176", _GENERAL),
    _Family("c3-highmem", 8, "4 8 22 44 88 176", _GENERAL),
    _Family("c3-highcpu", 2, "4 8 22 44 88 176", _GENERAL),
    _Family("c3d-standard", 4, "4 8 16 30 60 90 180 360", _GENERAL),
    _Family("c3d-highmem", 8, "4 8 16 30 60 90 180 360", _GENERAL),
)

_SHARED = (
    MachineType("f1-micro", 1, 614, _GENERAL, shared_cpu=True),
    MachineType("g1-small", 1, 1740, _GENERAL, shared_cpu=True),
    MachineType("e2-micro", 2, 1024, _GENERAL, shared_cpu=True),
    MachineType("e2-small", 2, 2048, _GENERAL, shared_cpu=True),
    MachineType("e2-medium", 2, 4096, _GENERAL, shared_cpu=True),
)

_WITH_CHIPS = tuple(
    MachineType(
        f"{generation.machine_family}-{row.chips}t",
        row.cpus,
        None if row.memory_gb is None else row.memory_gb * MIB_PER_GB,
        row.source,
        generation.name,
        row.chips,
    )
    for generation in GENERATIONS.values()
    for row in generation.machines
)

# kubernetes-engine/docs/concepts/tpus; Compute Engine's own list (tpu-machines) leaves them out
GKE_ONLY = ("ct3-hightpu-4t", "ct3p-hightpu-4t", "ct4p-hightpu-4t", "ct5l-hightpu-8t")


@functools.cache
def all_types() -> Mapping[str, MachineType]:
    """Every machine type by its name, in the order of names."""
    rows = [*_SHARED, *_WITH_CHIPS]
    for family in _FAMILIES:
        for count in map(int, family.cpus.split()):
            memory = round(count * family.gb * MIB_PER_GB)
            rows.append(MachineType(f"{family.prefix}-{count}", count, memory, family.source))
    table = {row.name: row for row in sorted(rows, key=lambda row: row.name)}
    assert len(table) == len(rows), "two machine types have one name"
    return table


def find(name: str) -> MachineType | None:
    return all_types().get(name)


def of_kind(kind: AcceleratorType) -> MachineType | None:
    """The machine type of the hosts of a slice; None where Compute Engine has none."""
    for row in _WITH_CHIPS:
        if (row.generation, row.chips) == (kind.generation.name, kind.chips_per_host):
            return row
    return None


def billed_kind(name: str) -> AcceleratorType:
    """The type of a bill's line: an accelerator type, or a machine type without chips. Raises
    INVALID_ARGUMENT for neither."""
    machine = find(name)
    return parse(name) if machine is None or machine.has_chips else kind_of(name, NO_TOPOLOGY)
