"""Sums over devices that a loop adds up or stacks; what is gathered again. What is expected in here
is what the
compiler made of the same programs (libtpu 0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax, nn

from tests.unit.engine.meshes import BF16, F32, Spec, SplitMesh, estimate_by, sent_by

MESH = SplitMesh({"data": 8})
_psum: Any = lax.psum


def _perceptron(params: Any, x: Any) -> Any:
    up, down, scale = params
    return jnp.mean(
        jnp.square(
            x
            + (jnp.tanh((x * scale).astype(BF16) @ up.astype(BF16)) @ down.astype(BF16)).astype(F32)
        )
    )


def _summed(params: Any, parts: Any) -> Any:
    """Gradients and losses of parts of a batch, added up."""

    def turn(carry: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, carry, jax.value_and_grad(_perceptron)(params, x)), None

    return lax.scan(turn, (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)), parts)[0]


def _arrays(width: int) -> Any:
    shapes = (width, 2 * width), (2 * width, width), (width,)
    params = tuple(MESH.array(shape, *[None] * len(shape)) for shape in shapes)
    return params, MESH.array((4, 1024, width), None, "data", None)


@pytest.mark.parametrize("on", ["v5litepod-8", "v3-8"])
def test_gradients_of_parts_of_a_batch_are_sent_once(on: str) -> None:
    """The mean of the losses is not: it is divided before it is added."""
    sent = sent_by(_summed, on, *_arrays(64))
    assert sent == [("all-reduce", 4)] * 4 + [("all-reduce", 4 * (2 * 64 * 128 + 64))]


def test_sums_behind_a_loop_have_places_of_their_own() -> None:
    def step(params: Any, parts: Any) -> Any:
        value, grads = _summed(params, parts)
        return jax.tree.map(lambda p, g: p - 0.1 / 4 * g, params, grads), value

    estimate = estimate_by(step, "v3-8", *_arrays(1024), donated=(0,))
    assert estimate.peak_hbm_bytes == pytest.approx(52451328, rel=0.02)


@pytest.mark.parametrize(
    ("divided", "start", "count"), [(False, False, 1), (False, True, 1), (True, False, 4)]
)
def test_sums_by_hand_are_made_behind_the_loop_if_they_are_only_added(
    divided: bool, start: bool, count: int
) -> None:
    def step(weight: Any, parts: Any) -> Any:
        def turn(carry: Any, x: Any) -> Any:
            given = _psum(jnp.exp(x.astype(BF16) @ weight.astype(BF16)).sum(0).astype(F32), "data")
            return carry + (given / 8 if divided else given), None

        return lax.scan(turn, parts[0, 0] if start else jnp.zeros((512,)), parts)[0]

    shard_map: Any = jax.shard_map
    split = shard_map(
        step,
        mesh=MESH.mesh,
        in_specs=(Spec(), Spec(None, "data")),
        out_specs=Spec(),
        check_vma=False,
    )
    arrays = MESH.array((512, 512), None, None), MESH.array((4, 1024, 512), None, "data", None)
    assert [kind for kind, _ in sent_by(split, "v5litepod-8", *arrays)] == ["all-reduce"] * count


@pytest.mark.parametrize(
    ("layers", "width", "behind"),
    [(2, 1280, True), (2, 1344, False), (8, 320, True), (8, 384, False)],
)
def test_stacked_sums_are_made_behind_the_loop_up_to_ten_kibibytes(
    layers: int, width: int, behind: bool
) -> None:
    """Gradients of scales, which a loop over layers stacks. Those of the weights are made in each
    turn."""

    def loss(params: Any, x: Any) -> Any:
        def layer(x: Any, own: Any) -> Any:
            scale, weight = own
            h = (x.astype(F32) * scale).astype(BF16)
            return x + jnp.tanh(h @ weight.astype(BF16)), None

        return jnp.mean(jnp.square(lax.scan(layer, x, params)[0].astype(F32)))

    params = (
        MESH.array((layers, width), None, None),
        MESH.array((layers, width, width), None, None, None),
    )
    sent = sent_by(
        jax.value_and_grad(loss),
        "v5litepod-8",
        params,
        MESH.array((1024, width), "data", None, dtype=BF16),
    )
    scales = (
        [("all-reduce", 4 + 4 * layers * width)]
        if behind
        else [("all-reduce", 4)] + [("all-reduce", 4 * width)] * layers
    )
    assert sent == sorted(scales + [("all-reduce", 2 * width * width)] * layers)


def test_a_weight_is_gathered_again_where_its_readers_are_far_apart() -> None:
    """Of six layers, the two last ones need not gather theirs again for the gradient."""

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = x + nn.gelu(x @ weight.astype(BF16))
        return jnp.mean(jnp.square(x.astype(F32)))

    def step(weights: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x)
        return [w - 0.01 * g for w, g in zip(weights, grads, strict=True)], value

    weights = [MESH.array((1024, 1024), "data", None)] * 6
    sent = sent_by(step, "v5litepod-8", weights, MESH.array((4096, 1024), "data", None, dtype=BF16))
    assert [kind for kind, _ in sent].count("all-gather") == 9


def _turned(x: Any, sin: Any, cos: Any) -> Any:
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)


def _tables() -> Any:
    angles = jnp.arange(256)[:, None] * 1e4 ** (-jnp.arange(32, dtype=F32) / 32)
    return jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]


def test_tables_of_positions_are_worked_out_by_each_device() -> None:
    """Heads are turned by their places where tokens are split, and back where heads are."""
    mesh = SplitMesh({"data": 4, "model": 2})
    keep: Any = lax.with_sharding_constraint

    def loss(weight: Any, x: Any) -> Any:
        heads = _turned(jnp.einsum("btd,dhk->bthk", x, weight), *_tables())
        return jnp.mean(jnp.square(keep(heads, mesh.on("data", None, "model", None))))

    weight = mesh.array((512, 16, 64), None, "model", None)
    sent = sent_by(
        jax.value_and_grad(loss),
        "v5litepod-8",
        weight,
        mesh.array((8, 256, 512), "data", "model", None),
    )
    assert [nbytes for kind, nbytes in sent if kind == "all-gather"] == [524288, 1048576]


def test_numbers_that_are_worked_out_in_many_steps_are_sent() -> None:
    """1,500 steps from the places of tokens: more calls inside of each other than Python allows."""
    mesh = SplitMesh({"data": 4, "model": 2})

    def fn(x: Any, y: Any) -> Any:
        at = jnp.arange(256, dtype=F32)[:, None]
        for step in range(1500):
            at = jnp.sin(at) if step % 2 else at * 1.5
        return x * at, y * at

    arrays = (
        mesh.array((8, 256, 64), "data", "model", None),
        mesh.array((8, 256, 64), "data", None, "model"),
    )
    assert [kind for kind, _ in sent_by(fn, "v5litepod-8", *arrays)] == ["all-gather"]


def test_tables_that_a_loop_is_given_are_whole_in_it() -> None:
    mesh = SplitMesh({"data": 4, "model": 2})
    keep: Any = lax.with_sharding_constraint

    def loss(weights: Any, x: Any) -> Any:
        tables = _tables()

        def layer(x: Any, weight: Any) -> Any:
            heads = _turned(jnp.einsum("btd,dhk->bthk", x, weight), *tables)
            found = jnp.tanh(keep(heads, mesh.on("data", None, "model", None)))
            return keep(
                x + jnp.einsum("bthk,dhk->btd", found, weight), mesh.on("data", "model", None)
            ), None

        return jnp.mean(jnp.square(lax.scan(layer, x, weights)[0]))

    weights = mesh.array((2, 512, 16, 64), None, None, "model", None)
    sent = sent_by(
        jax.value_and_grad(loss),
        "v5litepod-8",
        weights,
        mesh.array((8, 256, 512), "data", "model", None),
    )
    assert [nbytes for kind, nbytes in sent if kind == "all-gather"] == [524288] * 4 + [1048576] * 2


def test_sums_of_scattered_sums_are_scattered_once() -> None:
    """Gradients of three products of one array, whose tokens are split as the weights are."""
    mesh = SplitMesh({"data": 4, "model": 2})
    keep: Any = lax.with_sharding_constraint

    def loss(x: Any, weights: Any) -> Any:
        x = keep(x, mesh.on("data", "model", None))
        made = [keep(x @ weight, mesh.on("data", None, "model")) for weight in weights]
        return sum(jnp.mean(jnp.square(one.astype(F32))) for one in made)

    weights = [mesh.array((512, 1024), None, "model", dtype=BF16)] * 3
    x = mesh.array((8, 256, 512), "data", "model", None, dtype=BF16)
    sent = sent_by(jax.grad(loss), "v3-8", x, weights)
    assert [kind for kind, _ in sent].count("reduce-scatter") == 1


def test_tokens_that_are_split_along_the_axis_of_a_table_change_places_with_the_batch() -> None:
    """A table whose rows are split as the tokens are, next to a batch along the two other axes:
    places and rows move once, and the batch is gathered along the axis of the table."""
    mesh = SplitMesh({"data": 4, "model": 2})

    def fn(table: Any, text: Any) -> Any:
        keep: Any = lax.with_sharding_constraint
        return keep(table[text].astype(BF16), mesh.on("data", "model", None))

    sent = sent_by(
        fn,
        "v5litepod-8",
        mesh.array((8192, 512), "model", None),
        mesh.array((8, 256), "data", "model", dtype=jnp.int32),
    )
    assert [kind for kind, _ in sent] == [
        "all-gather",
        "collective-permute",
        "collective-permute",
        "reduce-scatter",
    ]
