"""Shardings of a step's tensors over a mesh of devices, and their text in StableHLO (`sdy`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class LogicalMesh:
    """`axes`: name and size of each, major first. `order`: the devices' numbers, by place."""

    axes: tuple[tuple[str, int], ...]
    order: tuple[int, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.axes)

    def text(self) -> str:
        """`<["x"=4, "y"=2]>`, with the devices where they are not in the order of their
        numbers."""
        axes = ", ".join(f"{_quote(name)}={size}" for name, size in self.axes)
        is_sorted = self.order == tuple(range(len(self.order)))
        ids = "" if is_sorted else f", device_ids=[{', '.join(map(str, self.order))}]"
        return f"<[{axes}]{ids}>"


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSharding:
    """`dims[dimension]`: the mesh's axes that split it, major first."""

    mesh: LogicalMesh
    dims: tuple[tuple[str, ...], ...]

    def text(self, mesh_name: str) -> str:
        """`<@mesh, [{"x"}, {}]>`."""
        dims = ", ".join(f"{{{', '.join(map(_quote, names))}}}" for names in self.dims)
        return f"<@{mesh_name}, [{dims}]>"

    def parts(self) -> tuple[int, ...]:
        """Into how many parts each dimension is split."""
        sizes = self.mesh.sizes
        return tuple(math.prod(sizes[name] for name in names) for names in self.dims)

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Of one device, with the padding of the last one."""
        return tuple(-(-size // part) for size, part in zip(shape, self.parts(), strict=True))

    @property
    def is_split(self) -> bool:
        return any(part > 1 for part in self.parts())


def _quote(name: str) -> str:
    plain = "".join(one if one.isalnum() or one in "_-." else "_" for one in name)
    return f'"{plain}"'
