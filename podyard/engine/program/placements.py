"""Shardings of JAX's own objects: those of arguments, of jitted functions and of constraints in them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from jax.extend import source_info_util

from podyard.engine.program.doubts import Doubt
from podyard.engine.program.ir import Program
from podyard.engine.program.shardings import WHOLE


def is_on_mesh(sharding: Any) -> bool:
    """Whether it is a NamedSharding over more than one device."""
    return hasattr(sharding, "spec") and mesh_size(sharding.mesh) > 1


def mesh_size(mesh: Any) -> int:
    return math.prod(mesh.shape.values())


def mesh_text(mesh: Any) -> str:
    return ", ".join(f'"{name}"={size}' for name, size in mesh.shape.items())


def split_axes(sharding: Any) -> dict[int, int]:
    """Axes of the array that are split, and into how many parts."""
    factors: dict[int, int] = {}
    for axis, entry in enumerate(sharding.spec):
        names = entry if isinstance(entry, tuple) else (entry,)
        factor = math.prod(sharding.mesh.shape[name] for name in names if isinstance(name, str))
        if factor > 1:
            factors[axis] = factor
    return factors


def is_one_axis(sharding: Any) -> bool:
    """Whether it leaves the array whole, or splits one axis over all devices of the mesh."""
    return list(split_axes(sharding).values()) in ([], [mesh_size(sharding.mesh)])


def placement_doubt(sharding: Any, what: str) -> Doubt | None:
    """Of a sharding that one axis over all devices does not express."""
    if not is_on_mesh(sharding) or is_one_axis(sharding):
        return None
    mesh, spec = mesh_text(sharding.mesh), ", ".join(map(repr, sharding.spec))
    counted = f"counted as one axis over all {mesh_size(sharding.mesh)} devices"
    return Doubt("sharding", mesh, f"{what} is sharded P({spec}) over mesh {mesh}: {counted}")


def constraint_axis(sharding: Any) -> int | None:
    """The axis that a constraint splits its value along, or WHOLE; None where it says neither."""
    if not is_on_mesh(sharding) or not is_one_axis(sharding) or "UNCONSTRAINED" in str(sharding.spec):
        return None
    return next(iter(split_axes(sharding)), WHOLE)


def place_argument(program: Program, value: int, sharding: Any, what: str) -> None:
    """Splits an argument of `program` as its sharding says, as far as one axis over all devices expresses it."""
    if not is_on_mesh(sharding):
        return
    program.partitions = max(program.partitions, mesh_size(sharding.mesh))
    axes = split_axes(sharding)
    if axes and value in program.body.parameters:
        program.split_axes[value] = next(iter(axes))
    doubt = placement_doubt(sharding, what)
    program.doubts += [doubt] if doubt is not None else []


def place_of(eqn: Any) -> str:
    """`step.py:14 (loss)`, where the user wrote it; "" where JAX does not know."""
    path, _, rest = source_info_util.summarize(eqn.source_info).partition(":")
    line, _, function = rest.partition(" ")
    return f"{Path(path).name}:{line.partition(':')[0]} {function}".strip() if rest else ""
