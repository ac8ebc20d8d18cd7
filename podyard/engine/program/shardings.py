"""Shardings: which axes of a mesh split which dimension of an array. Read from StableHLO text; no
JAX.

A mesh is kept as the prime factors of its axes ("digits" of a device's number, major first), so
that sub-axes, tile assignments and meshes of other shapes over the same devices are all tuples of
the same digits. Sources: openxla/shardy, docs/sharding_representation.md (`sdy.sharding`, sub-axes
such as `"x":(1)2`) and openxla/xla, xla/hlo/ir/hlo_sharding.h (`mhlo.sharding`:
`devices=[...]<=[...]T(...)`, trailing `last_tile_dim_replicate` or `last_tile_dims`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence

# Digits of a device's number that split a dimension, major first.
Axes = tuple[int, ...]
# On an operation: how its result (of `shard`: its operand) is to lie; the axes that are manual in
# it.
PLACED, MANUAL = "placed", "manual"

_MESH_NAME = re.compile(r"@[\w.$-]+")
_MESH_INLINE = re.compile(r"mesh\s*<\s*\[(.*?)\]")
_MESH_AXIS = re.compile(r'"([^"]*)"\s*=\s*([0-9]{1,9})')
_SUB_AXIS = re.compile(r'"([^"]*)"(?:\s*:\s*\(\s*(\d{1,9})\s*\)\s*(\d{1,9}))?')
_UNREDUCED = re.compile(r"unreduced\s*=\s*\{\s*\"")
_TILES = re.compile(r"devices=\[([\d, ]+)\](?:<=\[([\d, ]+)\](?:T\(([\d, ]+)\))?|([\d, ]+))?")
_LAST_TILES = re.compile(r"last_tile_dims=\{([^{}]*)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Mesh:
    """`sizes`: the prime factors of the axes, major first; `names`: the axis that each belongs
    to. `order`: for each device of the mesh its place in the list of the slice's devices; empty:
    the mesh has them in that order."""

    sizes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    order: tuple[int, ...] = ()

    @property
    def devices(self) -> int:
        return math.prod(self.sizes)

    def extent(self, axes: Iterable[int]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    def place(self, device: int) -> int:
        return self.order[device] if self.order else device

    def stride(self, axis: int) -> int:
        """By how much a device's number grows from one place of the axis to the next."""
        return math.prod(self.sizes[axis + 1 :])

    def between(self, stride: int, extent: int) -> Axes | None:
        """The digits of an axis with that stride and extent; None where they are not whole
        digits."""
        found = [
            axis for axis in range(len(self.sizes)) if stride <= self.stride(axis) < stride * extent
        ]
        fits = self.extent(found) == extent and (not found or self.stride(found[-1]) == stride)
        return tuple(found) if fits else None

    def groups_text(self, axes: Axes) -> str:
        """`"d"`, `"m":4`: the axes by name, with their extents where only a part is meant."""
        parts: dict[str, int] = {}
        for axis in axes:
            parts[self.names[axis]] = parts.get(self.names[axis], 1) * self.sizes[axis]
        whole = {
            name: math.prod(s for n, s in zip(self.names, self.sizes, strict=True) if n == name)
            for name in parts
        }
        return ", ".join(
            f'"{name}"' if whole[name] == size else f'"{name}":{size}'
            for name, size in parts.items()
        )

    def __str__(self) -> str:
        axes = dict.fromkeys(self.names, 1)
        for name, size in zip(self.names, self.sizes, strict=True):
            axes[name] *= size
        return ", ".join(f'"{name}"={size}' for name, size in axes.items())


def mesh_of(axes: Mapping[str, int]) -> Mesh:
    pairs = [(name, prime) for name, size in axes.items() for prime in _primes(size)]
    return Mesh(tuple(prime for _, prime in pairs), tuple(name for name, _ in pairs))


def _primes(number: int) -> list[int]:
    primes, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            primes.append(divisor)
            number //= divisor
        divisor += 1
    return [*primes, number] if number > 1 else primes


@dataclasses.dataclass(frozen=True, slots=True)
class Sharding:
    """`dims[dimension]`: the axes that split it. An `open_dims` dimension may be split further.
    `manual`: axes over which a value is one device's own."""

    dims: tuple[Axes, ...]
    open_dims: tuple[bool, ...] = ()
    manual: Axes = ()

    def is_open(self, dimension: int) -> bool:
        return dimension < len(self.open_dims) and self.open_dims[dimension]

    def fits(self, rank: int) -> bool:
        return len(self.dims) == rank


def whole(rank: int) -> Sharding:
    return Sharding(((),) * rank)


def base_mesh(
    meshes: Iterable[Mapping[str, int]], partitions: int, tilings: Iterable[Sequence[int]]
) -> Mesh:
    """The mesh of a module: its largest one, or what its tile assignments count the devices by, or
    one axis."""
    largest = max(meshes, key=lambda sizes: (math.prod(sizes.values()), len(sizes)), default={})
    if math.prod(largest.values()) > 1:
        return mesh_of(largest)
    counted = max(
        (dims for dims in tilings if math.prod(dims) == partitions), key=len, default=(partitions,)
    )
    return mesh_of({f"axis_{place}": size for place, size in enumerate(counted)})


class ShardingReader:
    """The shardings of one module, as digits of its `mesh`. What cannot be said so is kept in
    `problems`."""

    def __init__(self, meshes: Mapping[str, Mapping[str, int]], mesh: Mesh) -> None:
        self.meshes = meshes
        self.mesh = mesh
        self.problem = ""

    def read(self, text: str, rank: int) -> Sharding | None:
        """None for what is not a sharding of an array, or cannot be read: then `problem` says
        why."""
        self.problem = ""
        stripped = text.strip()
        if stripped.startswith("{{"):  # one result: the first of a tuple
            stripped = stripped[1 : stripped.index("}", 2) + 1]
        if "replicated}" in stripped and "devices" not in stripped:
            return whole(rank)
        if stripped.startswith("{manual"):
            return Sharding(((),) * rank, manual=tuple(range(len(self.mesh.sizes))))
        tiles = _TILES.search(stripped)
        found = self._by_tiles(stripped, tiles) if tiles else self._by_names(stripped)
        if found is None and (tiles or "maximal" in stripped):
            self.problem = self.problem or f"{stripped[:80]} is not read"
        if found is not None and not found.fits(rank):
            self.problem = f"{stripped[:80]} is of another rank"
            return None
        return found

    def _by_names(self, text: str) -> Sharding | None:
        name, inline = _MESH_NAME.search(text), _MESH_INLINE.search(text)
        if name is None and inline is None:
            return None
        sizes: Mapping[str, int] = self.meshes.get(name[0], {}) if name else {}
        if inline is not None:
            sizes = {axis: int(size) for axis, size in _MESH_AXIS.findall(inline[1])}
        if math.prod(sizes.values()) not in (1, self.mesh.devices):
            self.problem = f"the mesh of {text[:80]} has not all devices"
            return None
        behind = text[(inline or name).end() :]  # type: ignore[union-attr]
        start = behind.find("[")
        dims = (
            re.findall(r"\{([^{}]*)\}", behind[start : behind.find("]", start)])
            if start >= 0
            else []
        )
        split = [self._axes(sizes, dim, text) for dim in dims]
        if _UNREDUCED.search(behind):
            self.problem = f"partial sums in {text[:80]} are taken for sums"
        return Sharding(tuple(split), tuple("?" in dim for dim in dims))

    def axes_of(self, mesh: str, names: Sequence[str]) -> Axes:
        """The digits of whole axes of a mesh."""
        return self._axes(self.meshes.get(mesh, {}), ",".join(f'"{name}"' for name in names), mesh)

    def _axes(self, sizes: Mapping[str, int], dim: str, text: str) -> Axes:
        axes: list[int] = []
        for name, before, part in _SUB_AXIS.findall(dim):
            size = sizes.get(name, 1)
            names = list(sizes)
            stride = (
                math.prod(sizes[other] for other in names[names.index(name) + 1 :])
                if name in sizes
                else 1
            )
            extent = int(part) if part else size
            stride *= size // (int(before) * extent) if part else 1
            found = self.mesh.between(stride, extent)
            if found is None:
                self.problem = f"{text[:80]} cuts the mesh otherwise than its axes"
            axes += found or ()
        return tuple(axes)

    def _by_tiles(self, text: str, tiles: re.Match[str]) -> Sharding | None:
        extents = _numbers(tiles[1])
        order = self._tile_order(tiles, math.prod(extents))
        if order is None:
            self.problem = f"{text[:80]} cuts the mesh otherwise than its axes"
            return None
        split: list[Axes] = []
        for extent in extents:
            taken: list[int] = []
            while self.mesh.extent(taken) < extent and order:
                taken.append(order.pop(0))
            if self.mesh.extent(taken) != extent:
                self.problem = f"{text[:80]} cuts the mesh otherwise than its axes"
                return None
            split.append(tuple(taken))
        last = _LAST_TILES.search(text)
        kinds = [kind.strip() for kind in last[1].split(",")] if last else []
        kinds += ["replicated"] if not last and "last_tile_dim_replicate" in text else []
        kept = len(split) - len(kinds)
        manual = [
            axis
            for kind, axes in zip(kinds, split[kept:], strict=True)
            if kind == "manual"
            for axis in axes
        ]
        return Sharding(tuple(split[:kept]), manual=tuple(manual))

    def _tile_order(self, tiles: re.Match[str], devices: int) -> list[int] | None:
        """The digits in the order in which tiles are handed to devices."""
        if devices != self.mesh.devices:
            return None
        if tiles[4]:
            return self._listed_order(_numbers(tiles[4]))
        counted = _numbers(tiles[2]) if tiles[2] else [devices]
        turn = _numbers(tiles[3]) if tiles[3] else list(range(len(counted)))
        order: list[int] = []
        for place in turn:
            found = self.mesh.between(math.prod(counted[place + 1 :]), counted[place])
            if found is None:
                return None
            order += found
        return order

    def _listed_order(self, devices: Sequence[int]) -> list[int] | None:
        """Of devices that are written out: the order of digits that gives the same list."""
        order, step = list[int](), 1
        while step < len(devices):
            axis = next(
                (a for a in range(len(self.mesh.sizes)) if self.mesh.stride(a) == devices[step]),
                None,
            )
            if axis is None or axis in order:
                return None
            order.insert(0, axis)
            step *= self.mesh.sizes[axis]
        return order if list(devices) == self.device_order(order) else None

    def device_order(self, order: Sequence[int]) -> list[int]:
        numbers = [0]
        for axis in order:
            stride = self.mesh.stride(axis)
            numbers = [
                number + place * stride
                for number in numbers
                for place in range(self.mesh.sizes[axis])
            ]
        return numbers

    def group_axes(self, groups: Sequence[Sequence[int]]) -> Axes | None:
        """The axes along which the devices of a group differ; None where groups are not such."""
        first = sorted(groups[0]) if groups else []
        if len(first) * len(groups) != self.mesh.devices:
            return None
        axes = [
            axis
            for axis in range(len(self.mesh.sizes))
            if first and first[0] + self.mesh.stride(axis) in first
        ]
        wanted = {frozenset(group) for group in groups}
        offsets = self.device_order(axes)
        bases = self.device_order(
            [axis for axis in range(len(self.mesh.sizes)) if axis not in axes]
        )
        is_same = len(offsets) == len(first) and wanted == {
            frozenset(b + o for o in offsets) for b in bases
        }
        return tuple(axes) if is_same else None

    def shifted_axes(self, pairs: Sequence[Sequence[int]]) -> Axes:
        """The axes along which a sender and its receiver differ."""
        places = [(axis, self.mesh.stride(axis), size) for axis, size in enumerate(self.mesh.sizes)]
        return tuple(
            axis
            for axis, stride, size in places
            if any(source // stride % size != target // stride % size for source, target in pairs)
        )


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number.strip()]
