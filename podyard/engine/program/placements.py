"""Shardings of JAX's own objects: those of arguments, of jitted functions and of constraints in
them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax.extend import source_info_util

from podyard.engine.program.doubts import Doubt
from podyard.engine.program.ir import HOST_KINDS, Program
from podyard.engine.program.shardings import Axes, Mesh, Sharding, ShardingReader, mesh_of

_MESH = "@mesh"


class Placements:
    """The mesh that a function's shardings are over: the first of them; others over as many devices
    are read by it."""

    def __init__(self) -> None:
        self.mesh = Mesh()
        self.doubts: list[Doubt] = []

    def adopt(self, mesh: Any) -> None:
        if mesh.shape and math.prod(mesh.shape.values()) > self.mesh.devices:
            self.mesh = mesh_of({str(name): int(size) for name, size in mesh.shape.items()})

    def of(self, sharding: Any, rank: int, what: str) -> Sharding | None:
        """None for what is not a NamedSharding over several devices."""
        if not hasattr(sharding, "spec") or math.prod(sharding.mesh.shape.values()) <= 1:
            return None
        self.adopt(sharding.mesh)
        dims, open_dims = list[Axes](), list[bool]()
        for entry in (*sharding.spec, *(None,) * (rank - len(sharding.spec))):
            names = entry if isinstance(entry, tuple) else (entry,)
            dims.append(
                self.axes(sharding.mesh, [name for name in names if isinstance(name, str)], what)
            )
            open_dims.append("UNCONSTRAINED" in repr(entry))
        return Sharding(tuple(dims), tuple(open_dims))

    def axes(self, mesh: Any, names: Sequence[str], what: str) -> Axes:
        self.adopt(mesh)
        sizes = {str(name): int(size) for name, size in mesh.shape.items()}
        reader = ShardingReader({_MESH: sizes}, self.mesh)
        found = reader.axes_of(_MESH, names)
        if reader.problem or math.prod(sizes.values()) != self.mesh.devices:
            reason = (
                f"the sharding of {what} is not read: mesh {reader_text(sizes)} next to {self.mesh}"
            )
            self.doubts.append(Doubt("sharding", str(self.mesh), reason))
        return found

    def place_argument(self, program: Program, value: int, sharding: Any, what: str) -> None:
        if value not in program.body.parameters:
            return
        if getattr(sharding, "memory_kind", None) in HOST_KINDS:
            program.host_arguments.add(value)
        found = self.of(sharding, len(program.types[value].shape), what)
        if found is not None:
            program.shardings[value] = found
            self.tell(program)

    def place_result(self, program: Program, place: int, sharding: Any, rank: int) -> None:
        if getattr(sharding, "memory_kind", None) in HOST_KINDS:
            program.host_results.add(place)
        own = self.of(sharding, rank, f"result {place}")
        if own is not None:
            program.result_shardings[place] = own

    def tell(self, program: Program) -> None:
        program.mesh, program.partitions = self.mesh, max(program.partitions, self.mesh.devices)


def reader_text(sizes: dict[str, int]) -> str:
    return ", ".join(f'"{name}"={size}' for name, size in sizes.items())


def place_of(eqn: Any) -> str:
    """`step.py:14 (loss)`, where the user wrote it; "" where JAX does not know."""
    path, _, rest = source_info_util.summarize(eqn.source_info).partition(":")
    line, _, function = rest.partition(" ")
    return f"{Path(path).name}:{line.partition(':')[0]} {function}".strip() if rest else ""
