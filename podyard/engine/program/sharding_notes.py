"""The shardings of one StableHLO module, read where they stand; a doubt for each that cannot be
read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from podyard.base.errors import invalid
from podyard.engine.program.doubts import Doubt
from podyard.engine.program.ir import HloOperation
from podyard.engine.program.shardings import (
    MANUAL,
    PLACED,
    Axes,
    Mesh,
    Sharding,
    ShardingReader,
    base_mesh,
)

_TILING = re.compile(r"<=\[([\d,]+)\]")
_FRONTEND_MESH = re.compile(r"(\w+)\s*=\s*#sdy\.mesh<\[([^\]]*)\]")
_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d{1,9})')
_DEVICES = re.compile(r"devices=\[([\d, ]+)\]")
_BYTES = re.compile(r'dense<"0x([0-9A-Fa-f]*)"> : tensor<(\d{1,9})x(\d{1,9})xi64>')
_QUOTED = re.compile(r'\\+22|\\+"')
COLLECTIVES = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"}
)


class ShardingNotes:
    def __init__(
        self,
        meshes: Mapping[str, Mapping[str, int]],
        partitions: int,
        frontend: object,
        tilings: str,
    ) -> None:
        outside = {
            f"@{name}": dict(_sizes(axes)) for name, axes in _FRONTEND_MESH.findall(plain(frontend))
        }
        self.meshes = {**outside, **meshes}
        self.partitions = partitions
        self.doubts: list[Doubt] = []
        self.tilings = [
            [int(size) for size in text.split(",") if size] for text in _TILING.findall(tilings)
        ]
        self._reader = ShardingReader(self.meshes, Mesh())

    @property
    def mesh(self) -> Mesh:
        return self._reader.mesh

    def check_meshes(self) -> int:
        """Return how many devices the module is written for. JAX leaves `mhlo.num_partitions` at 1
        where only a shard_map has a mesh. Raises PodyardError INVALID_ARGUMENT for a mesh of any
        other size than `mhlo.num_partitions`."""
        largest = max((math.prod(sizes.values()) for sizes in self.meshes.values()), default=1)
        if self.partitions == 1:
            self.partitions = largest
        for name, sizes in self.meshes.items():
            text = ", ".join(f'"{axis}"={size}' for axis, size in sizes.items())
            self._check(math.prod(sizes.values()), f"mesh {name} ({text})")
        self._reader = ShardingReader(
            self.meshes, base_mesh(self.meshes.values(), self.partitions, self.tilings)
        )
        return self.partitions

    def _check(self, devices: int, what: str) -> None:
        if devices > 1 and devices != self.partitions:
            raise invalid(
                f"StableHLO: {what} has {devices} devices, and mhlo.num_partitions is "
                f"{self.partitions}: "
                "they must be equal",
                "module",
            )

    def read(self, text: str, rank: int, what: str) -> Sharding | None:
        """`what` names the place: "argument 2", "the constraint at line 7"."""
        tiles = _DEVICES.search(text)
        if tiles:
            self._check(
                math.prod(int(size) for size in tiles[1].split(",") if size.strip()),
                f"the sharding of {what}",
            )
        sharding = self._reader.read(text, rank)
        if self._reader.problem:
            reason = f"the sharding of {what} is not read: {self._reader.problem}"
            self.doubts.append(Doubt("sharding", str(self.mesh), reason))
        return sharding

    def of_argument(
        self, attributes: Mapping[str, object], what: str, rank: int
    ) -> Sharding | None:
        given = attributes.get("sdy.sharding", attributes.get("mhlo.sharding"))
        if given is None:
            inside = attributes.get("mhlo.frontend_attributes")
            given = inside.get("xla.sdy.sharding") if isinstance(inside, dict) else None
        return self.read(plain(given), rank, what) if given is not None else None

    def place(self, text: str, rank: int, what: str) -> dict[str, object]:
        """The attributes of a sharding constraint."""
        sharding = self.read(text, rank, what)
        return (
            {}
            if sharding is None or len(sharding.manual) == len(self.mesh.sizes) > 0
            else {PLACED: sharding}
        )

    def manual(
        self, attributes: Mapping[str, object], name: str, place: int, rank: int, where: str
    ) -> dict[str, object]:
        """The attributes of the border of a manual computation; `name`: in_shardings or
        out_shardings."""
        given = attributes.get(name)
        texts = (
            [plain(one) for one in given] if isinstance(given, tuple) else split_list(plain(given))
        )
        if place >= len(texts):
            return {}
        sharding = self.read(texts[place], rank, f"what goes through the shard_map ({where})")
        if sharding is None:
            return {}
        mesh = next((mesh for mesh in self.meshes if mesh in texts[place]), "")
        manual = self._reader.axes_of(mesh, _names(attributes.get("manual_axes")))
        return {PLACED: Sharding(sharding.dims, sharding.open_dims, manual)}

    def groups(self, operation: HloOperation) -> dict[str, object]:
        """Along which axes a collective that the program has itself exchanges."""
        groups = operation.attributes.get("replica_groups")
        axes: Axes | None = None
        if self.partitions > 1 and (rows := _rows(groups)):
            axes = self._reader.group_axes(rows)
        pairs = operation.attributes.get("source_target_pairs")
        own: dict[str, object] = {"given": True}
        if self.partitions > 1 and (found := _rows(pairs)):
            own["pairs"] = tuple(pair for pair in found if len(pair) == 2)
            axes = self._reader.shifted_axes(found)
        return own if axes is None else {**own, "axes": axes}


def plain(value: object) -> str:
    """The text of an attribute, with the quotes inside of a string as such."""
    if isinstance(value, dict):
        return ", ".join(f"{name} = {plain(item)}" for name, item in value.items())
    return _QUOTED.sub('"', value) if isinstance(value, str) else ""


def split_list(text: str) -> list[str]:
    """The items of `#sdy.sharding_per_value<[<...>, <...>]>`."""
    items, depth, start = [], 0, 0
    inner = text[text.find("[") + 1 :] if "per_value" in text else text
    for place, mark in enumerate(inner):
        if mark == "<":
            start = place if depth == 0 else start
            depth += 1
        elif mark == ">":
            depth -= 1
            if depth == 0:
                items.append(inner[start : place + 1])
    return items


def _rows(value: object) -> list[tuple[int, ...]]:
    """A matrix of whole numbers, also as the bytes in which long ones are printed; empty for
    anything else."""
    if isinstance(value, str):
        match = _BYTES.match(value)
        if match is None or len(match[1]) != 16 * int(match[2]) * int(match[3]):
            return []
        data, width = bytes.fromhex(match[1]), int(match[3])
        numbers = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
        return [tuple(numbers[at : at + width]) for at in range(0, len(numbers), width)]
    rows = (
        [row if isinstance(row, tuple) else (row,) for row in value]
        if isinstance(value, tuple)
        else []
    )
    return [row for row in rows if all(isinstance(number, int) for number in row)] if rows else []


def _sizes(axes: str) -> list[tuple[str, int]]:
    return [(name, int(size)) for name, size in _AXIS.findall(axes)]


def _names(value: object) -> Sequence[str]:
    if isinstance(value, dict):
        return [str(name).strip('"') for name in value]
    return re.findall(r'"([^"]*)"', value) if isinstance(value, str) else []


__all__ = ["COLLECTIVES", "MANUAL", "ShardingNotes"]
