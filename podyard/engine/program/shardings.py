"""Shardings of StableHLO text, and what of them one axis over all devices does not express.

Sources: openxla/shardy, docs/sharding_representation.md (`sdy.sharding`, sub-axes such as `"x":(1)2`) and openxla/xla,
xla/hlo/ir/hlo_sharding.h (`mhlo.sharding`: `devices=[...]`, trailing `last_tile_dim_replicate` or `last_tile_dims`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from podyard.base.errors import invalid
from podyard.engine.program.doubts import Doubt
from podyard.engine.program.ir import HloOperation

Meshes = Mapping[str, Mapping[str, int]]
# On an operation: the axis that its result is to be split along, WHOLE for none.
PLACED = "placed_axis"
WHOLE = -1
_MESH_NAME = re.compile(r"@[\w.$-]+")
_MESH_INLINE = re.compile(r"mesh<\[(.*?)\]")
_MESH_AXIS = re.compile(r'"([^"]*)"\s*=\s*([0-9]{1,9})')
_SUB_AXIS = re.compile(r'"([^"]*)"(?:\s*:\s*\(\s*\d{1,9}\s*\)\s*(\d{1,9}))?')
_TILES = re.compile(r"devices=\[([\d, ]+)\]")
_LAST_TILES = re.compile(r"last_tile_dims=\{([^{}]*)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Sharding:
    """`factors[axis]`: how many parts an axis of the array is cut into. `devices`: size of the mesh. `is_open`: the
    compiler may cut further axes. `mesh`: its axes, as text."""

    factors: tuple[int, ...]
    devices: int
    is_open: bool
    mesh: str

    @property
    def axis(self) -> int:
        """The first axis that is split, or WHOLE."""
        return next((axis for axis, factor in enumerate(self.factors) if factor > 1), WHOLE)

    @property
    def is_one_axis(self) -> bool:
        """Whether the array is whole on every device or split along one axis over all of them."""
        return sorted(factor for factor in self.factors if factor > 1) in ([], [self.devices])

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.factors))}] parts over mesh {self.mesh}"


def sharding_of(attribute: object, meshes: Meshes) -> Sharding | None:
    """Of the text of an attribute; None where it is neither `sdy.sharding` nor a tiling of `mhlo.sharding`."""
    attribute = _text(attribute)
    tiles = _TILES.search(attribute)
    if tiles:
        extents = [int(extent) for extent in tiles[1].split(",") if extent.strip()]
        last = _LAST_TILES.search(attribute)
        dropped = len(last[1].split(",")) if last else int("last_tile_dim_replicate" in attribute)
        kept = tuple(extents[: len(extents) - dropped])
        return Sharding(kept, math.prod(extents), False, f"[{','.join(map(str, extents))}]")
    name, inline = _MESH_NAME.search(attribute), _MESH_INLINE.search(attribute)
    if name is None and inline is None:
        return None
    sizes: Mapping[str, int] = meshes.get(name[0], {}) if name else {}
    if inline is not None:
        sizes = {axis: int(size) for axis, size in _MESH_AXIS.findall(inline[1])}
    behind = attribute[(name or inline).end() :]  # type: ignore[union-attr]
    start = behind.find("[")
    dims = re.findall(r"\{([^{}]*)\}", behind[start : behind.find("]", start)]) if start >= 0 else []
    factors = [
        math.prod(int(part) if part else sizes.get(axis, 1) for axis, part in _SUB_AXIS.findall(dim)) for dim in dims
    ]
    mesh = ", ".join(f'"{axis}"={size}' for axis, size in sizes.items())
    return Sharding(tuple(factors), math.prod(sizes.values()), "?" in behind, mesh)


class ShardingNotes:
    """Reads the shardings of one module and keeps a doubt for each that the model does not express."""

    def __init__(self, meshes: Meshes, partitions: int) -> None:
        self.meshes = meshes
        self.partitions = partitions
        self.doubts: list[Doubt] = []

    def check_meshes(self) -> int:
        """How many devices the module is written for. JAX leaves `mhlo.num_partitions` at 1 where only a shard_map has
        a mesh. Raises PodyardError INVALID_ARGUMENT for a mesh of any other size than `mhlo.num_partitions`."""
        largest = max((math.prod(sizes.values()) for sizes in self.meshes.values()), default=1)
        if self.partitions == 1 < largest:
            reason = f"mhlo.num_partitions is 1 and the mesh has {largest} devices: counted as {largest} partitions"
            self.doubts.append(Doubt("devices", "mesh", reason))
            self.partitions = largest
        for name, sizes in self.meshes.items():
            text = ", ".join(f'"{axis}"={size}' for axis, size in sizes.items())
            self._check(math.prod(sizes.values()), f"mesh {name} ({text})")
        return self.partitions

    def _check(self, devices: int, what: str) -> None:
        if devices > 1 and devices != self.partitions:
            raise invalid(
                f"StableHLO: {what} has {devices} devices, and mhlo.num_partitions is {self.partitions}: "
                "they must be equal",
                "module",
            )

    def read(self, attribute: object, what: str) -> Sharding | None:
        """`what` names the place: "argument 2", "the constraint at line 7"."""
        sharding = sharding_of(attribute, self.meshes)
        if sharding is None:
            return None
        self._check(sharding.devices, f"the sharding of {what}")
        if not sharding.is_one_axis:
            self.doubts.append(
                Doubt(
                    "sharding",
                    sharding.mesh,
                    f"{what} is sharded into {sharding}: counted as one axis over all {self.partitions} devices",
                )
            )
        return sharding

    def of_arguments(self, attributes: Mapping[str, object], place: int) -> int | None:
        """The axis that an argument of `main` is split along."""
        what = f"argument {place}"
        frontend = str(attributes.get("mhlo.frontend_attributes", ""))
        given = attributes.get("sdy.sharding", attributes.get("mhlo.sharding"))
        if given is None and "sdy.sharding" in frontend:
            self.doubts.append(
                Doubt("sharding", "frontend", f"the sharding of {what} is in mhlo.frontend_attributes: it is not read")
            )
        sharding = self.read(given, what)
        return None if sharding is None or sharding.axis == WHOLE else sharding.axis

    def place(self, attribute: object, what: str) -> dict[str, object]:
        """The attributes of a sharding constraint, which the partitioner compares with what it finds."""
        sharding = self.read(attribute, what)
        if sharding is None or sharding.is_open or not sharding.is_one_axis:
            return {}
        return {PLACED: sharding.axis}

    def split_results(self, attributes: Mapping[str, object], count: int) -> list[int]:
        """For each result of a manual computation, the axis that it is split along, or WHOLE."""
        shardings = [sharding_of(one, self.meshes) for one in _list(attributes.get("out_shardings"))]
        axes = [WHOLE if sharding is None else sharding.axis for sharding in shardings]
        return axes if len(axes) == count else [WHOLE] * count

    def manual(self, operation: HloOperation, split_axes: Mapping[int, int], is_all: bool) -> None:
        """A manual computation is modelled when it is all that `main` does, along one axis, and its arguments lie on
        the devices as it takes them."""
        texts = operation.attributes.get("in_shardings"), operation.attributes.get("out_shardings")
        ins, outs = ([sharding_of(text, self.meshes) for text in _list(one)] for one in texts)
        used = [sharding for sharding in (*ins, *outs) if sharding is not None]
        if all(sharding.devices <= 1 for sharding in used) and self.partitions == 1:
            return
        given = [split_axes.get(value, WHOLE) for value in operation.operands]
        agree = len(ins) == len(given) and [WHOLE if one is None else one.axis for one in ins] == given
        if is_all and agree and all(sharding.is_one_axis for sharding in used):
            return
        mesh = used[0].mesh if used else f"{self.partitions} devices"
        self.doubts.append(shard_map_doubt(mesh, operation.where))


def shard_map_doubt(mesh: str, where: str) -> Doubt:
    return Doubt(
        "shard_map", mesh, f"shard_map over {mesh} ({where}): what goes in and out is counted as one device's part"
    )


def missing_transfer(what: str, wanted: int, found: int) -> Doubt:
    """A result that is not split as the program asks: the transfer that does it is missing."""
    texts = ["whole" if axis == WHOLE else f"split along axis {axis}" for axis in (wanted, found)]
    return Doubt("sharding", "placement", f"{what} is to be {texts[0]} and is {texts[1]}: no transfer is counted")


def _text(attribute: object) -> str:
    """Shardings of operations come as values, `("@mesh", ({"x": True}, {}))`; those of arguments as text."""
    if isinstance(attribute, tuple) and len(attribute) > 1 and isinstance(attribute[1], tuple):
        dims = ", ".join("{" + ", ".join(_quote(dim)) + "}" for dim in attribute[1])
        return f"<{attribute[0]}, [{dims}]>"
    return attribute if isinstance(attribute, str) else ""


def _quote(dim: object) -> list[str]:
    return [name if name == "?" else f'"{name}"' for name in dim] if isinstance(dim, dict) else []


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple) else ()
