"""Programs over a mesh of devices, and what they send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import sharding

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

F32, BF16 = jnp.float32, jnp.bfloat16
Spec: Any = sharding.PartitionSpec


class SplitMesh:
    def __init__(self, axes: dict[str, int]) -> None:
        types = (sharding.AxisType.Auto,) * len(axes)
        self.mesh = sharding.AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=types)

    def on(self, *spec: str | None) -> Any:
        return sharding.NamedSharding(self.mesh, Spec(*spec))

    def array(self, shape: tuple[int, ...], *spec: str | None, dtype: Any = F32) -> Any:
        struct: Any = jax.ShapeDtypeStruct
        return struct(shape, dtype, sharding=self.on(*spec))


def estimate_by(
    fn: Callable[..., Any], on: str, *arrays: Any, donated: tuple[int, ...] = ()
) -> Estimate:
    """The estimate of a function that is compiled for arrays of a mesh."""
    text = (
        jax.jit(fn, donate_argnums=donated)
        .trace(*arrays)
        .lower(lowering_platforms=("tpu",))
        .as_text()
    )
    return estimate_program(parse_stablehlo(text), parse(on))


def sent_by(fn: Callable[..., Any], on: str, *arrays: Any) -> list[tuple[str, int]]:
    """(kind, bytes), sorted: of sums the bytes of all arrays."""
    found = estimate_by(fn, on, *arrays).collective_ops
    return sorted((one.kind, one.nbytes) for one in found for _ in range(one.count))
