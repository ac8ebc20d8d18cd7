"""Accelerator types: the tables, and how a name or a wire configuration is read.

The tables are data with a source per table; libtpu cannot replace them, because it accepts shapes
that Cloud TPU never offered. Chips, cores and hosts follow from the shape. A host (Google's TPU VM)
carries 4 chips; single-chip types and the 8-chip serving types have one host of their size.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping

from podyard.base.errors import invalid
from podyard.hardware.generation import NO_GENERATION, TYPES, Generation
from podyard.hardware.generations import BY_WIRE_TYPE, GENERATIONS
from podyard.hardware.topology import (
    CUBE_EDGE_CHIPS,
    NO_TOPOLOGY,
    Shape,
    Topology,
    parse_topology,
    shape_text,
    topology_of,
)

CHIPS_PER_HOST = 4

KINDS_KEPT_MAX = 1024  # types with their topologies: more than are offered
# xpk's rule; with it the counts are xpk's too: 186 shapes on v4, 414 on v5p
_CUBES_PER_DIMENSION_MAX = 64
_SUB_CUBES: tuple[Shape, ...] = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))

_NAME = re.compile(r"((?:v|tpu)[0-9a-z]*)-([1-9]\d{0,5})")


@dataclasses.dataclass(frozen=True, slots=True)
class AcceleratorType:
    """A legal slice. `source` says where its row comes from."""

    name: str
    generation: Generation
    topology: Topology
    chip_count: int
    core_count: int
    host_count: int
    source: str

    @property
    def chips_per_host(self) -> int:
        return self.chip_count // self.host_count

    @property
    def chips_per_host_bounds(self) -> str:
        """TPU_CHIPS_PER_HOST_BOUNDS, e.g. `2,2,1`."""
        return ",".join(map(str, host_shape(self)))

    @property
    def host_bounds(self) -> str:
        """TPU_HOST_BOUNDS: hosts per dimension, e.g. `2,2,8` for 4x4x8."""
        shape = (*self.topology.shape, 1)[:3]
        return ",".join(
            str(extent // per) for extent, per in zip(shape, host_shape(self), strict=True)
        )

    @property
    def device_count(self) -> int:
        """Return what JAX calls devices: cores on v2 and v3, chips from v4 on."""
        return self.chip_count * self.generation.devices_per_chip

    @property
    def is_single_host(self) -> bool:
        return self.host_count == 1


def host_shape(kind: AcceleratorType) -> Shape:
    """Chips of one host as (x, y, z)."""
    if kind.chip_count == 1:
        return (1, 1, 1)
    if kind.host_count == 1 and kind.chip_count == 8:
        return (2, 4, 1)
    return (2, 2, 1)


def _host_count(generation: Generation, chip_count: int) -> int:
    # Single-core chips in two dimensions: 1, 4 and 8 chips are one VM (8: ct5lp-hightpu-8t, the
    # serving type).
    if chip_count == 1 or (
        generation.dimensions == 2 and generation.cores_per_chip == 1 and chip_count <= 8
    ):
        return 1
    return chip_count // CHIPS_PER_HOST


def _build(generation: Generation, topology: Topology, source: str) -> AcceleratorType:
    chips = math.prod(topology.shape)
    cores = chips * generation.cores_per_chip
    number = cores if generation.name_counts == "cores" else chips
    return AcceleratorType(
        name=f"{generation.name_prefix}-{number}",
        generation=generation,
        topology=topology,
        chip_count=chips,
        core_count=cores,
        host_count=_host_count(generation, chips),
        source=source,
    )


@functools.cache
def _by_name() -> Mapping[str, AcceleratorType]:
    """Every size that has a legal shape, by its name, with its default shape: the table's, else the
    most cube-like."""
    table: dict[str, AcceleratorType] = {}
    for generation in GENERATIONS.values():
        for text in generation.shapes.split():
            kind = _build(generation, parse_topology(generation, text), generation.shapes_source)
            assert kind.name not in table, f"two default shapes for {kind.name}"
            table[kind.name] = kind
        if generation.dimensions == 3:
            for shape in sorted(_shapes_3d(generation), key=lambda shape: (sum(shape), shape)):
                kind = _build(generation, topology_of(generation, shape), TYPES)
                table.setdefault(kind.name, kind)
    return table


@functools.cache
def _by_shape() -> Mapping[tuple[str, Shape], AcceleratorType]:
    """Every named type by generation and default shape."""
    return {(kind.generation.name, kind.topology.shape): kind for kind in _by_name().values()}


def all_types(generation: Generation | str | None = None) -> tuple[AcceleratorType, ...]:
    """Every named type, of one generation or of all, ascending by chips."""
    return _types_of(generation.name if isinstance(generation, Generation) else generation)


@functools.cache
def _types_of(name: str | None) -> tuple[AcceleratorType, ...]:
    kinds = [kind for kind in _by_name().values() if name is None or kind.generation.name == name]
    order = list(GENERATIONS)
    return tuple(
        sorted(kinds, key=lambda kind: (order.index(kind.generation.name), kind.chip_count))
    )


def parse(name: str) -> AcceleratorType:
    """The type called `name`, e.g. `v3-32`, in its default shape; raises INVALID_ARGUMENT that
    names the nearest types.

    The only reader of names: what `from_config` takes has a name that is read here, too.
    """
    kind = _by_name().get(name)
    if kind is not None:
        return kind
    match = _NAME.fullmatch(name)
    same = [
        k for k in _by_name().values() if match is not None and k.generation.name_prefix == match[1]
    ]
    if match is None or not same:
        prefixes = ", ".join(g.name_prefix for g in GENERATIONS.values() if g.node_type)
        raise invalid(
            f"accelerator type {name!r} does not exist: a type is a generation ({prefixes}) and a "
            "size, as in v3-8",
            "acceleratorType",
        )
    number = int(match[2])
    near = sorted(same, key=lambda k: (abs(_number(k) - number), _number(k)))[:4]
    names = ", ".join(k.name for k in sorted(near, key=_number))
    raise invalid(
        f"accelerator type {name!r} does not exist; the nearest that do are {names}",
        "acceleratorType",
    )


@functools.lru_cache(KINDS_KEPT_MAX)
def kind_of(name: str, topology: str, host_count: int = 0) -> AcceleratorType:
    """The type of a name and a topology (empty: the name's own): v4 and v5p have shapes that are no
    name's default.

    `host_count` (0: as on the TPU API): Compute Engine makes eight chips in two dimensions of one
    host or of two. With NO_TOPOLOGY the name is that of a machine type without chips.
    Raises INVALID_ARGUMENT for what does not exist.
    """
    if topology == NO_TOPOLOGY:
        return AcceleratorType(name, NO_GENERATION, Topology((), ()), 0, 0, 1, "no chips")
    kind = _kind_of(name, topology)
    return dataclasses.replace(kind, host_count=host_count) if host_count else kind


def _kind_of(name: str, topology: str) -> AcceleratorType:
    prefix = name.rsplit("-", 1)[0]
    for generation in GENERATIONS.values():
        if topology and generation.shapes and generation.name_prefix == prefix:
            return from_topology(generation, topology)
    return parse(name)


def _number(kind: AcceleratorType) -> int:
    return kind.core_count if kind.generation.name_counts == "cores" else kind.chip_count


def from_config(wire_type: str, topology_text: str) -> AcceleratorType:
    """The type of an acceleratorConfig `{type, topology}` of the Cloud TPU API; raises
    INVALID_ARGUMENT, saying why."""
    generation = BY_WIRE_TYPE.get(wire_type)
    if generation is None:
        raise invalid(
            f"acceleratorConfig.type {wire_type!r} does not exist: "
            f"one of {', '.join(BY_WIRE_TYPE)}",
            "acceleratorConfig.type",
        )
    return from_topology(generation, topology_text)


def from_topology(generation: Generation, topology_text: str) -> AcceleratorType:
    """Return the type of a generation with this topology; raises INVALID_ARGUMENT, saying why.

    Three-dimensional generations take every legal A x B x C, also shapes that are no name's
    default; the name then counts the cores.
    """
    topology = parse_topology(generation, topology_text)
    kind = _by_shape().get((generation.name, topology.shape))
    if kind is not None and kind.topology == topology:
        return kind
    if generation.dimensions == 3:
        _check_shape_3d(generation, topology.shape)
        return _build(generation, topology, TYPES)
    shapes = ", ".join(kind.topology.text for kind in all_types(generation))
    raise invalid(
        f"topology {topology_text} is not offered on {generation.name}: one of {shapes}",
        "acceleratorConfig.topology",
    )


def _check_shape_3d(generation: Generation, shape: Shape) -> None:
    """A <= B <= C, each a multiple of 4, or one of the four shapes below a cube."""
    field = "acceleratorConfig.topology"
    text = shape_text(shape)
    if shape in _SUB_CUBES:
        return
    if any(extent % CUBE_EDGE_CHIPS for extent in shape):
        small = ", ".join(shape_text(s) for s in _SUB_CUBES)
        raise invalid(
            f"topology {text} is not offered on {generation.name}: each dimension is a multiple of "
            f"{CUBE_EDGE_CHIPS}, or the shape is one of {small}",
            field,
        )
    if tuple(sorted(shape)) != shape:
        raise invalid(
            f"topology {text} is not offered on {generation.name}: write the dimensions in "
            "ascending order, "
            f"{shape_text(tuple(sorted(shape)))}",
            field,
        )
    if shape[-1] > CUBE_EDGE_CHIPS * _CUBES_PER_DIMENSION_MAX:
        raise invalid(
            f"topology {text} is not offered on {generation.name}: no dimension is longer than "
            f"{CUBE_EDGE_CHIPS * _CUBES_PER_DIMENSION_MAX} chips",
            field,
        )
    cubes = math.prod(shape) // CUBE_EDGE_CHIPS**3
    if generation.cubes_max is not None and cubes > generation.cubes_max:
        raise invalid(
            f"topology {text} is not offered on {generation.name}: it has {cubes} cubes of 64 "
            "chips and a pod has "
            f"{generation.cubes_max}",
            field,
        )


def legal_shapes(generation: Generation) -> tuple[Shape, ...]:
    """Every shape that `from_config` takes, ascending by chips."""
    if generation.dimensions == 2:
        return tuple(kind.topology.shape for kind in all_types(generation))
    return _shapes_3d(generation)


def shapes_of(kind: AcceleratorType) -> tuple[AcceleratorType, ...]:
    """The type in every legal shape of its size, its default shape first."""
    others = _shapes_by_chips(kind.generation.name).get(kind.chip_count, ())
    default = parse(kind.name)
    return (
        default,
        *(
            _build(kind.generation, topology_of(kind.generation, shape), TYPES)
            for shape in others
            if shape != default.topology.shape
        ),
    )


@functools.cache
def _shapes_by_chips(generation_name: str) -> Mapping[int, tuple[Shape, ...]]:
    found: dict[int, tuple[Shape, ...]] = {}
    for shape in legal_shapes(GENERATIONS[generation_name]):
        found[math.prod(shape)] = (*found.get(math.prod(shape), ()), shape)
    return found


def _shapes_3d(generation: Generation) -> tuple[Shape, ...]:
    cubes_max = generation.cubes_max or 0
    cubes = [
        (a, b, c)
        for a in range(1, cubes_max + 1)
        for b in range(a, cubes_max // a + 1)
        for c in range(b, min(_CUBES_PER_DIMENSION_MAX, cubes_max // (a * b)) + 1)
    ]
    shapes = [tuple(CUBE_EDGE_CHIPS * extent for extent in shape) for shape in cubes]
    return tuple(sorted([*_SUB_CUBES, *shapes], key=lambda s: (math.prod(s), s)))
