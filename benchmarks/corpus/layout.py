"""How a program's arrays lie on a mesh: names of dimensions, and rules that give each name an axis
of the mesh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, sharding

BF16, F32, I32, I8 = jnp.bfloat16, jnp.float32, jnp.int32, jnp.int8

# Which axis of the mesh a dimension is split over, by the usual names of the ways to train in
# parallel.
RULES = {
    "data": {"batch": "data"},
    "fsdp": {"batch": "data", "embed": "data"},
    "tensor": {"heads": "model", "mlp": "model", "vocab": "model", "rows": "model"},
    "sequence": {"tokens": "model"},
    "expert": {"expert": "expert"},
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh by the sizes of its axes, and `ways`: the names of the rules that hold. Without axes,
    one device."""

    axes: tuple[tuple[str, int], ...] = ()
    ways: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.axes)

    @property
    def mesh(self) -> Any:
        names, sizes = tuple(name for name, _ in self.axes), tuple(size for _, size in self.axes)
        return sharding.AbstractMesh(
            sizes, names, axis_types=(sharding.AxisType.Auto,) * len(sizes)
        )

    def spec(self, names: str) -> Any:
        """`names`: one for each dimension, "." for one that is never split. An axis splits one
        dimension only."""
        rules: dict[str, str] = {}
        for way in self.ways:
            rules |= RULES[way]
        axes = dict(self.axes)
        parts: list[str | None] = []
        for name in names.split():
            axis = rules.get(name)
            parts.append(axis if axis in axes and axis not in parts else None)
        return sharding.PartitionSpec(*parts)

    def on(self, names: str) -> Any:
        return sharding.NamedSharding(self.mesh, self.spec(names)) if self.axes else None

    def array(self, shape: tuple[int, ...], names: str = "", dtype: Any = F32) -> Any:
        struct: Any = jax.ShapeDtypeStruct
        return struct(shape, dtype, sharding=self.on(names or " ".join("." * len(shape))))

    def keep(self, x: Any, names: str) -> Any:
        """`x` with the wish that it is split like this."""
        return lax.with_sharding_constraint(x, self.on(names)) if self.axes else x

    def shard(self, fn: Callable[..., Any], into: Any, out: Any) -> Any:
        """`fn` for each device's part: `into` and `out` are PartitionSpecs."""
        return jax.shard_map(fn, mesh=self.mesh, in_specs=into, out_specs=out, check_vma=False)


ONE = Layout()


@dataclasses.dataclass(frozen=True)
class Made:
    """A program: what jit is given."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    donated: tuple[int, ...] = ()
    layout: Layout = ONE

    def text(self) -> str:
        """StableHLO as JAX lowers it for a TPU."""
        jitted = jax.jit(self.fn, donate_argnums=self.donated)
        return str(jitted.trace(*self.args).lower(lowering_platforms=("tpu",)).as_text())


def like(tree: Any, dtype: Any = None) -> Any:
    """Arrays as those of `tree`, sharded alike."""
    struct: Any = jax.ShapeDtypeStruct
    return jax.tree.map(
        lambda leaf: struct(leaf.shape, dtype or leaf.dtype, sharding=leaf.sharding), tree
    )


def _sgd(params: Any, grads: Any, _state: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.01 * g.astype(p.dtype), params, grads), ()


def _momentum(params: Any, grads: Any, state: Any) -> Any:
    state = jax.tree.map(lambda v, g: 0.9 * v + g.astype(v.dtype), state, grads)
    return jax.tree.map(lambda p, v: p - (0.01 * v).astype(p.dtype), params, state), state


def _adam(params: Any, grads: Any, state: Any) -> Any:
    first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g.astype(F32), first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * jnp.square(g.astype(F32)), second, grads)
    step = 1e-3 * jnp.sqrt(1 - 0.999 ** count.astype(F32)) / (1 - 0.9 ** count.astype(F32))
    params = jax.tree.map(
        lambda p, m, v: p - (step * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype), params, first, second
    )
    return params, (first, second, count)


def train(
    loss: Callable[..., Any],
    params: Any,
    batch: tuple[Any, ...],
    layout: Layout,
    optimizer: str = "adam",
) -> Made:
    """The training step of `loss(params, *batch)`, with parameters and state donated."""
    state: Any = {"sgd": (), "momentum": like(params), "adam": ()}[optimizer]
    if optimizer == "adam":
        state = (like(params, F32), like(params, F32), layout.array((), "", I32))
    update = {"sgd": _sgd, "momentum": _momentum, "adam": _adam}[optimizer]

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        made, state = update(params, grads, state)
        return made, state, value

    return Made(step, (params, state, *batch), (0, 1), layout)
