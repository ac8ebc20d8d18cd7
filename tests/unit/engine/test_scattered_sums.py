"""Which sums over devices are scattered, and which are joined; which gathers are sums. What is expected in here is what
the compiler made of the same programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax, sharding

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

_F32, _BF16 = jnp.float32, jnp.bfloat16
_Axes = dict[str, int]
_Spec: Any = sharding.PartitionSpec
_keep: Any = lax.with_sharding_constraint
_psum_scatter: Any = lax.psum_scatter
_MODEL = {"data": 4, "model": 2}


class _Mesh:
    def __init__(self, axes: _Axes) -> None:
        types = (sharding.AxisType.Auto,) * len(axes)
        self.mesh = sharding.AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=types)

    def on(self, *spec: str | None) -> Any:
        return sharding.NamedSharding(self.mesh, _Spec(*spec))

    def array(self, shape: tuple[int, ...], *spec: str | None, dtype: Any = _F32) -> Any:
        struct: Any = jax.ShapeDtypeStruct
        return struct(shape, dtype, sharding=self.on(*spec))


def _sent(fn: Callable[..., Any], on: str, *arrays: Any) -> list[tuple[str, int]]:
    """(kind, bytes), sorted: of sums the bytes of all arrays."""
    text = jax.jit(fn).trace(*arrays).lower(lowering_platforms=("tpu",)).as_text()
    found = estimate_program(parse_stablehlo(text), parse(on)).collective_ops
    return sorted((one.kind, one.nbytes) for one in found for _ in range(one.count))


def _sum(on: str, axes: _Axes, part: tuple[int, ...], dim: int, dtype: Any = _F32) -> list[tuple[str, int]]:
    """Sums of which each device of `data` gets a part of this shape."""
    mesh = _Mesh(axes)
    shape = tuple(size * (axes["data"] if place == dim else 1) for place, size in enumerate(part))
    spec = ["data" if place == dim else None for place in range(len(part))]

    def fn(x: Any) -> Any:
        return _keep(jnp.exp(x).sum(0), mesh.on(*spec))

    return _sent(fn, on, mesh.array((64, *shape), "data", *[None] * len(part), dtype=dtype))


def _kinds(sent: list[tuple[str, int]]) -> list[str]:
    return [kind for kind, _ in sent]


SCATTERED, WHOLE, MOVED = ["reduce-scatter"], ["all-reduce"], ["collective-permute", "reduce-scatter"]


@pytest.mark.parametrize(
    ("on", "axes", "part", "dim", "dtype", "kinds"),
    [
        # Rows: a tile has 8 of them, on a square 16; a part has an even number of tiles. Parts that have not are
        # scattered with padding, and moved, if padding is less than a half.
        ("v5litepod-8", {"data": 8}, (8, 512), 0, _F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (4, 512), 0, _F32, WHOLE),
        ("v5litepod-8", {"data": 8}, (12, 512), 0, _F32, ["collective-permute", *MOVED]),
        ("v5litepod-8", _MODEL, (24, 512), 0, _BF16, SCATTERED),
        ("v5litepod-4", {"data": 4}, (24, 512), 0, _BF16, MOVED),
        ("v5litepod-4", {"data": 4}, (8, 512), 0, _F32, WHOLE),
        ("v3-8", _MODEL, (24, 512), 0, _F32, MOVED),
        ("v3-8", {"model": 2, "data": 4}, (8, 512), 0, _F32, WHOLE),
        ("v3-8", {"data": 2, "model": 4}, (8, 512), 0, _F32, SCATTERED),
        ("v4-16", _MODEL, (24, 512), 0, _F32, MOVED),
        ("v4-32", {"data": 8, "model": 2}, (24, 512), 0, _F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (24, 640), 0, _F32, ["collective-permute", *MOVED]),
        ("v5litepod-8", {"data": 2, "model": 4}, (40, 640), 0, _BF16, MOVED),
        ("v5litepod-8", _MODEL, (20, 640), 0, _F32, WHOLE),
        ("v5litepod-8", _MODEL, (8, 640), 0, _F32, WHOLE),
        ("v5litepod-8", _MODEL, (8, 2048), 0, _F32, SCATTERED),
        # Lanes: 128 of 4 bytes, 256 of 2.
        ("v5litepod-8", {"data": 8}, (256, 128), 1, _F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (256, 192), 1, _F32, WHOLE),
        ("v5litepod-8", {"data": 8}, (256, 128), 1, _BF16, WHOLE),
        ("v5litepod-8", {"data": 8}, (256, 256), 1, _BF16, SCATTERED),
        ("v6e-8", {"data": 8}, (256, 384), 1, _BF16, WHOLE),
        ("v4-16", _MODEL, (256, 64), 1, _F32, WHOLE),
        # The dimensions before them have no tiles of their own; a single one is never scattered.
        ("v5litepod-8", _MODEL, (3, 24, 640), 0, _F32, MOVED),
        ("v5litepod-8", _MODEL, (3, 24, 640), 1, _F32, SCATTERED),
        ("v5litepod-8", _MODEL, (3, 16, 256), 0, _F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (8192,), 0, _F32, WHOLE),
        # All of a square of 8 devices and more, and all in three dimensions.
        ("v3-8", {"data": 8}, (24, 512), 0, _F32, WHOLE),
        ("v5litepod-16", {"data": 16}, (24, 512), 0, _F32, WHOLE),
        ("v4-16", {"data": 8}, (24, 512), 0, _F32, WHOLE),
    ],
)
def test_a_sum_is_scattered_where_parts_have_whole_tiles(
    on: str, axes: _Axes, part: tuple[int, ...], dim: int, dtype: Any, kinds: list[str]
) -> None:
    assert _kinds(_sum(on, axes, part, dim, dtype)) == kinds


@pytest.mark.parametrize(("dtype", "nbytes"), [(_F32, 131072), (_BF16, 65536)])
def test_a_reduction_that_is_only_converted_crosses_the_links_converted(dtype: Any, nbytes: int) -> None:
    assert _sum("v3-8", {"data": 8}, (8, 512), 0, dtype) == [("all-reduce", nbytes)]


MIB = 2**20


@pytest.mark.parametrize(
    ("on", "axes", "joined"),
    [
        ("v5litepod-8", {"data": 8}, [6, 19, 19]),
        ("v5litepod-8", _MODEL, [2, 14, 14, 14]),
        ("v5litepod-8", {"data": 2, "model": 4}, [8, 9, 9, 9, 9]),
        ("v6e-8", _MODEL, [15, 29]),
        ("v6e-8", {"data": 8}, [5, 39]),
        ("v4-32", {"data": 4, "model": 4}, [2, 14, 14, 14]),
        ("v4-64", {"data": 16, "model": 2}, [22, 22]),
        # Of the slices between one ring and 64 chips each is for itself, and on a square of four chips.
        ("v5litepod-16", {"data": 8, "model": 2}, [1] * 44),
        ("v5litepod-32", {"data": 4, "model": 8}, [1] * 44),
        ("v5litepod-64", {"data": 8, "model": 8}, [6, 19, 19]),
        ("v3-8", _MODEL, [1] * 44),
        ("v4-8", {"data": 4}, [1] * 44),
    ],
)
def test_scattered_sums_are_joined_up_to_a_size(on: str, axes: _Axes, joined: list[int]) -> None:
    """44 arrays of half a MiB."""
    mesh = _Mesh(axes)

    def fn(xs: Any) -> Any:
        return [_keep(jnp.exp(x).sum(0), mesh.on("data", None)) for x in xs]

    sent = _sent(fn, on, [mesh.array((64, 128, 1024), "data", None, None)] * 44)
    assert sent == [("reduce-scatter", count * MIB // 2) for count in joined]


@pytest.mark.parametrize(
    ("size", "dtype", "kind"),
    [
        (1024, _F32, "all-gather"), (3072, _F32, "all-gather"), (65536, _BF16, "all-gather"),
        (512, _F32, "all-reduce"), (1536, _F32, "all-reduce"), (8000, _F32, "all-reduce"),
    ],
)  # fmt: skip
def test_a_row_is_gathered_where_parts_have_whole_lanes(size: int, dtype: Any, kind: str) -> None:
    mesh = _Mesh({"data": 8})

    def fn(x: Any, y: Any) -> Any:
        return y * _keep(jnp.exp(x), mesh.on(None))

    arrays = mesh.array((size,), "data", dtype=dtype), mesh.array((64, size), "data", None, dtype=dtype)
    assert _kinds(_sent(fn, "v5litepod-8", *arrays)) == [kind]


def test_the_diagonal_and_its_gradient_gather_their_places_once() -> None:
    """Places come out of a branch that is chosen already; the gradient is one number everywhere, which each has."""
    mesh = _Mesh({"data": 8})

    def fn(x: Any, y: Any) -> Any:
        return jax.value_and_grad(lambda x: jnp.mean(jax.nn.logsumexp(x @ y, 1) - jnp.diagonal(x @ y)))(x)

    sent = _sent(fn, "v5litepod-8", mesh.array((2048, 256), "data", None), mesh.array((256, 2048), None, None))
    assert sent == [("all-gather", 2048 * 2 * 4), ("all-reduce", 4), ("all-reduce", 2048 * 4)]


def test_scattered_sums_that_are_asked_for_are_each_for_themselves() -> None:
    mesh = _Mesh({"data": 8})

    def fn(*xs: Any) -> Any:
        return tuple(_psum_scatter(jnp.exp(x), "data", tiled=True) for x in xs)

    shard_map: Any = jax.shard_map
    parts = shard_map(fn, mesh=mesh.mesh, in_specs=(_Spec(),) * 3, out_specs=(_Spec("data"),) * 3, check_vma=False)
    arrays = [mesh.array((1024, 512), None, None)] * 3
    assert _sent(parts, "v5litepod-8", *arrays) == [("reduce-scatter", 2 * MIB)] * 3
