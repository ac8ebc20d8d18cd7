"""Which sums over devices are scattered, and which are joined; which gathers are sums. What is
expected in here is what the compiler made of the same programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.unit.engine.meshes import BF16, F32, Spec, SplitMesh, sent_by

_Axes = dict[str, int]
_keep: Any = lax.with_sharding_constraint
_psum_scatter: Any = lax.psum_scatter
_MODEL = {"data": 4, "model": 2}


def _sum(
    on: str, axes: _Axes, part: tuple[int, ...], dim: int, dtype: Any = F32
) -> list[tuple[str, int]]:
    """Sums of which each device of `data` gets a part of this shape."""
    mesh = SplitMesh(axes)
    shape = tuple(size * (axes["data"] if place == dim else 1) for place, size in enumerate(part))
    spec = ["data" if place == dim else None for place in range(len(part))]

    def fn(x: Any) -> Any:
        return _keep(jnp.exp(x).sum(0), mesh.on(*spec))

    return sent_by(fn, on, mesh.array((64, *shape), "data", *[None] * len(part), dtype=dtype))


def _kinds(sent: list[tuple[str, int]]) -> list[str]:
    return [kind for kind, _ in sent]


SCATTERED, WHOLE, MOVED = (
    ["reduce-scatter"],
    ["all-reduce"],
    ["collective-permute", "reduce-scatter"],
)


@pytest.mark.parametrize(
    ("on", "axes", "part", "dim", "dtype", "kinds"),
    [
        # Rows: a tile has 8 of them, on a square 16; a part has an even number of tiles. Parts that
        # have not are scattered with padding, and moved, if padding is less than a half.
        ("v5litepod-8", {"data": 8}, (8, 512), 0, F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (4, 512), 0, F32, WHOLE),
        ("v5litepod-8", {"data": 8}, (12, 512), 0, F32, ["collective-permute", *MOVED]),
        ("v5litepod-8", _MODEL, (24, 512), 0, BF16, SCATTERED),
        ("v5litepod-4", {"data": 4}, (24, 512), 0, BF16, MOVED),
        ("v5litepod-4", {"data": 4}, (8, 512), 0, F32, WHOLE),
        ("v3-8", _MODEL, (24, 512), 0, F32, MOVED),
        ("v3-8", {"model": 2, "data": 4}, (8, 512), 0, F32, WHOLE),
        ("v3-8", {"data": 2, "model": 4}, (8, 512), 0, F32, SCATTERED),
        ("v4-16", _MODEL, (24, 512), 0, F32, MOVED),
        ("v4-32", {"data": 8, "model": 2}, (24, 512), 0, F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (24, 640), 0, F32, ["collective-permute", *MOVED]),
        ("v5litepod-8", {"data": 2, "model": 4}, (40, 640), 0, BF16, MOVED),
        ("v5litepod-8", _MODEL, (20, 640), 0, F32, WHOLE),
        ("v5litepod-8", _MODEL, (8, 640), 0, F32, WHOLE),
        ("v5litepod-8", _MODEL, (8, 2048), 0, F32, SCATTERED),
        # Lanes: 128 of 4 bytes, 256 of 2.
        ("v5litepod-8", {"data": 8}, (256, 128), 1, F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (256, 192), 1, F32, WHOLE),
        ("v5litepod-8", {"data": 8}, (256, 128), 1, BF16, WHOLE),
        ("v5litepod-8", {"data": 8}, (256, 256), 1, BF16, SCATTERED),
        ("v6e-8", {"data": 8}, (256, 384), 1, BF16, WHOLE),
        ("v4-16", _MODEL, (256, 64), 1, F32, WHOLE),
        # The dimensions before them have no tiles of their own; a single one is never scattered.
        ("v5litepod-8", _MODEL, (3, 24, 640), 0, F32, MOVED),
        ("v5litepod-8", _MODEL, (3, 24, 640), 1, F32, SCATTERED),
        ("v5litepod-8", _MODEL, (3, 16, 256), 0, F32, SCATTERED),
        ("v5litepod-8", {"data": 8}, (8192,), 0, F32, WHOLE),
        # All of a square of 8 devices and more, and all in three dimensions.
        ("v3-8", {"data": 8}, (24, 512), 0, F32, WHOLE),
        ("v5litepod-16", {"data": 16}, (24, 512), 0, F32, WHOLE),
        ("v4-16", {"data": 8}, (24, 512), 0, F32, WHOLE),
    ],
)
def test_a_sum_is_scattered_where_parts_have_whole_tiles(
    on: str, axes: _Axes, part: tuple[int, ...], dim: int, dtype: Any, kinds: list[str]
) -> None:
    assert _kinds(_sum(on, axes, part, dim, dtype)) == kinds


@pytest.mark.parametrize(("dtype", "nbytes"), [(F32, 131072), (BF16, 65536)])
def test_a_reduction_that_is_only_converted_crosses_the_links_converted(
    dtype: Any, nbytes: int
) -> None:
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
        # Of the slices between one ring and 64 chips each is for itself, and on a square of four
        # chips.
        ("v5litepod-16", {"data": 8, "model": 2}, [1] * 44),
        ("v5litepod-32", {"data": 4, "model": 8}, [1] * 44),
        ("v5litepod-64", {"data": 8, "model": 8}, [6, 19, 19]),
        ("v3-8", _MODEL, [1] * 44),
        ("v3-8", {"model": 4, "data": 2}, [1] * 44),
        ("v4-8", {"data": 4}, [1] * 44),
    ],
)
def test_scattered_sums_are_joined_up_to_a_size(on: str, axes: _Axes, joined: list[int]) -> None:
    """44 arrays of half a MiB."""
    mesh = SplitMesh(axes)

    def fn(xs: Any) -> Any:
        return [_keep(jnp.exp(x).sum(0), mesh.on("data", None)) for x in xs]

    sent = sent_by(fn, on, [mesh.array((64, 128, 1024), "data", None, None)] * 44)
    assert sent == [("reduce-scatter", count * MIB // 2) for count in joined]


@pytest.mark.parametrize(
    ("size", "dtype", "kind"),
    [
        (1024, F32, "all-gather"), (3072, F32, "all-gather"), (65536, BF16, "all-gather"),
        (512, F32, "all-reduce"), (1536, F32, "all-reduce"), (8000, F32, "all-reduce"),
    ],
)  # fmt: skip
def test_a_row_is_gathered_where_parts_have_whole_lanes(size: int, dtype: Any, kind: str) -> None:
    mesh = SplitMesh({"data": 8})

    def fn(x: Any, y: Any) -> Any:
        return y * _keep(jnp.exp(x), mesh.on(None))

    arrays = (
        mesh.array((size,), "data", dtype=dtype),
        mesh.array((64, size), "data", None, dtype=dtype),
    )
    assert _kinds(sent_by(fn, "v5litepod-8", *arrays)) == [kind]


def test_the_diagonal_and_its_gradient_gather_their_places_once() -> None:
    """Places come out of a branch that is chosen already; the gradient is one number everywhere,
    which each has."""
    mesh = SplitMesh({"data": 8})

    def fn(x: Any, y: Any) -> Any:
        return jax.value_and_grad(
            lambda x: jnp.mean(jax.nn.logsumexp(x @ y, 1) - jnp.diagonal(x @ y))
        )(x)

    sent = sent_by(
        fn,
        "v5litepod-8",
        mesh.array((2048, 256), "data", None),
        mesh.array((256, 2048), None, None),
    )
    assert sent == [("all-gather", 2048 * 2 * 4), ("all-reduce", 4), ("all-reduce", 2048 * 4)]


def test_scattered_sums_that_are_asked_for_are_each_for_themselves() -> None:
    mesh = SplitMesh({"data": 8})

    def fn(*xs: Any) -> Any:
        return tuple(_psum_scatter(jnp.exp(x), "data", tiled=True) for x in xs)

    shard_map: Any = jax.shard_map
    parts = shard_map(
        fn, mesh=mesh.mesh, in_specs=(Spec(),) * 3, out_specs=(Spec("data"),) * 3, check_vma=False
    )
    arrays = [mesh.array((1024, 512), None, None)] * 3
    assert sent_by(parts, "v5litepod-8", *arrays) == [("reduce-scatter", 2 * MIB)] * 3


def _gradient(
    on: str, axes: _Axes, equation: str, shape: tuple[int, ...], dim: int
) -> list[tuple[str, int]]:
    """The gradient of weights of which each device of `data` has a part, of products in
    bfloat16."""
    mesh = SplitMesh(axes)
    weights = mesh.array(shape, *("data" if place == dim else None for place in range(len(shape))))
    x = mesh.array((16, 64, shape[dim]), "data", None, None)

    def fn(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return jnp.mean(
                jnp.square(jnp.einsum(equation, x.astype(BF16), weights.astype(BF16)).astype(F32))
            )

        return weights - 0.01 * jax.grad(loss)(weights)

    kinds = ("all-reduce", "collective-permute", "reduce-scatter")
    return [one for one in sent_by(fn, on, weights, x) if one[0] in kinds and one[1] > 4]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        # Parts of 48 and 64 rows are no longer than a head; those of 96 to 192 would lie in lanes,
        # which are not whole.
        ((192, 8, 64), "reduce-scatter"), ((256, 4, 64), "reduce-scatter"),
        ((384, 2, 64), "all-reduce"),
        ((512, 8, 64), "all-reduce"), ((768, 4, 64), "all-reduce"),
        ((1024, 8, 64), "reduce-scatter"),
        ((1280, 4, 64), "all-reduce"), ((512, 4, 128), "reduce-scatter"),
        ((1280, 8, 128), "reduce-scatter"),
        ((512, 4, 96), "all-reduce"), ((640, 4, 96), "reduce-scatter"),
    ],
)  # fmt: skip
def test_the_gradient_of_weights_by_heads_lies_as_it_is_compact(
    shape: tuple[int, ...], kind: str
) -> None:
    assert _kinds(_gradient("v5litepod-8", _MODEL, "btd,dhk->bthk", shape, 0)) == [kind]


@pytest.mark.parametrize(
    ("axes", "shape", "nbytes"),
    [
        (_MODEL, (5120, 1280), 5120 * 1280 * 2), (_MODEL, (8192, 1280), 8192 * 1344 * 2),
        (_MODEL, (10240, 768), 10240 * 800 * 2), (_MODEL, (16384, 1280), 16384 * 1344 * 2),
        # Pieces have an even number of tiles.
        (_MODEL, (16000, 1280), 16000 * 1280 * 2),
        ({"data": 8}, (8192, 1280), 8192 * 1280 * 2), ({"data": 8}, (5120, 1280), 5120 * 1344 * 2),
    ],
)  # fmt: skip
def test_large_sums_are_scattered_in_equal_pieces(
    axes: _Axes, shape: tuple[int, ...], nbytes: int
) -> None:
    sent = _gradient("v5litepod-8", axes, "btd,vd->btv", shape, 1)
    assert sent[-1] == ("reduce-scatter", nbytes)
    assert len(sent) == 1 + (nbytes > shape[0] * shape[1] * 2)
