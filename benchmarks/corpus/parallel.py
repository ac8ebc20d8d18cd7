"""Programs whose collectives are written by hand, by shard_map: rings, pipelines, experts,
data-parallel sums."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, sharding

from benchmarks.corpus.layout import BF16, F32, I32, Layout, Made

_P: Any = sharding.PartitionSpec


def _on(layout: Layout, shape: tuple[int, ...], spec: Any, dtype: Any = F32) -> Any:
    struct: Any = jax.ShapeDtypeStruct
    return struct(shape, dtype, sharding=sharding.NamedSharding(layout.mesh, spec))


def ring_attention(devices: int, batch: int, heads: int, tokens: int, head: int) -> Made:
    """The sequence is split; keys and values go round the ring while each part is attended to."""
    layout = Layout((("model", devices),))

    def run(query: Any, key: Any, value: Any) -> Any:
        around = [(i, (i + 1) % devices) for i in range(devices)]

        def turn(state: Any, _: Any) -> Any:
            key, value, top, total, out = state
            scores = (
                jnp.einsum("bthd,bshd->bhts", query, key, preferred_element_type=F32) * head**-0.5
            )
            peak = jnp.maximum(top, scores.max(-1))
            shares, old = jnp.exp(scores - peak[..., None]), jnp.exp(top - peak)
            out = out * old[..., None] + jnp.einsum(
                "bhts,bshd->bhtd", shares.astype(BF16), value
            ).astype(F32)
            key, value = (lax.ppermute(x, "model", around) for x in (key, value))
            return (key, value, peak, total * old + shares.sum(-1), out), None

        part = (batch, heads, tokens // devices)
        start = (key, value, jnp.full(part, -jnp.inf), jnp.zeros(part), jnp.zeros((*part, head)))
        (_, _, _, total, out), _ = lax.scan(turn, start, None, length=devices)
        return (out / total[..., None]).astype(BF16)

    spec = _P(None, "model")
    arrays = (_on(layout, (batch, tokens, heads, head), spec, BF16),) * 3
    return Made(layout.shard(run, (spec,) * 3, _P(None, None, "model")), arrays, (), layout)


def pipeline(stages: int, width: int, batch: int, pieces: int, gradient: bool = False) -> Made:
    """Each device has one stage of two products; pieces of the batch go from stage to stage."""
    layout = Layout((("stage", stages),))

    def forward(weights: Any, x: Any) -> Any:
        def run(own: Any, x: Any) -> Any:
            place = lax.axis_index("stage")
            onward = [(i, i + 1) for i in range(stages - 1)]
            first, second = own[0][0].astype(BF16), own[1][0].astype(BF16)

            def turn(state: Any, step: Any) -> Any:
                got, made = state
                piece = jnp.where(place == 0, x[jnp.minimum(step, pieces - 1)], got)
                piece = piece + jax.nn.gelu(piece @ first) @ second
                at = jnp.maximum(step - stages + 1, 0)
                made = lax.dynamic_update_index_in_dim(made, piece, at, 0)
                return (lax.ppermute(piece, "stage", onward), made), None

            start = (jnp.zeros_like(x[0]), jnp.zeros_like(x))
            (_, made), _ = lax.scan(turn, start, jnp.arange(pieces + stages - 1))
            return lax.psum(jnp.where(place == stages - 1, made, 0).astype(F32), "stage")

        return layout.shard(run, ((_P("stage"), _P("stage")), _P()), _P())(weights, x)

    weights = (
        _on(layout, (stages, width, 4 * width), _P("stage")),
        _on(layout, (stages, 4 * width, width), _P("stage")),
    )
    x = _on(layout, (pieces, batch, width), _P(), BF16)
    if not gradient:
        return Made(forward, (weights, x), (), layout)
    return Made(
        jax.grad(lambda weights, x: jnp.mean(jnp.square(forward(weights, x)))),
        (weights, x),
        (),
        layout,
    )


def data_sums(devices: int, widths: tuple[int, ...], batch: int) -> Made:
    """A training step of a perceptron with the mean of gradients written out."""
    layout = Layout((("data", devices),))

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            h = x.astype(BF16)
            for w in params[:-1]:
                h = jax.nn.relu(h @ w.astype(BF16))
            return jnp.mean(jnp.square((h @ params[-1].astype(BF16)).astype(F32) - y))

        value, grads = jax.value_and_grad(loss)(params)
        grads = lax.pmean(grads, "data")
        return [p - 0.1 * g for p, g in zip(params, grads, strict=True)], lax.pmean(value, "data")

    params = [_on(layout, pair, _P()) for pair in itertools.pairwise(widths)]
    given = (
        _on(layout, (batch, widths[0]), _P("data")),
        _on(layout, (batch, widths[-1]), _P("data")),
    )
    return Made(
        layout.shard(step, (_P(), _P("data"), _P("data")), (_P(), _P())),
        (params, *given),
        (0,),
        layout,
    )


def experts(devices: int, tokens: int, width: int, inner: int) -> Made:
    """Tokens are sorted by expert on each device, exchanged all to all, run, and exchanged back."""
    layout = Layout((("expert", devices),))
    room = tokens // devices // devices * 2

    def run(router: Any, up: Any, down: Any, x: Any) -> Any:
        shares = jax.nn.softmax((x @ router).astype(F32))
        share, chosen = lax.top_k(shares, 1)
        chosen = chosen[:, 0]
        hot = jax.nn.one_hot(chosen, devices, dtype=I32)
        place = jnp.take_along_axis(jnp.cumsum(hot, 0) - 1, chosen[:, None], 1)[:, 0]
        sent = jnp.zeros((devices, room, width), x.dtype).at[chosen, place].set(x, mode="drop")
        got = lax.all_to_all(sent, "expert", 0, 0)
        made = jax.nn.silu(got.reshape(-1, width) @ up[0]) @ down[0]
        back = lax.all_to_all(made.reshape(devices, room, width), "expert", 0, 0)
        return x + back.at[chosen, place].get(mode="fill", fill_value=0) * share.astype(x.dtype)

    into = (_P(), _P("expert"), _P("expert"), _P("expert"))
    args = (
        _on(layout, (width, devices), _P(), BF16),
        _on(layout, (devices, width, inner), _P("expert"), BF16),
        _on(layout, (devices, inner, width), _P("expert"), BF16),
        _on(layout, (tokens, width), _P("expert"), BF16),
    )
    return Made(layout.shard(run, into, _P("expert")), args, (), layout)


def gathered_weights(devices: int, width: int, batch: int, layers: int) -> Made:
    """Weights are gathered before use, and gradients scattered after: fully sharded training by
    hand."""
    layout = Layout((("data", devices),))

    def step(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            h = x
            for w in params:
                h = jax.nn.relu(h @ lax.all_gather(w.astype(BF16), "data", tiled=True))
            return jnp.mean(jnp.square(h.astype(F32)))

        return [p - 0.1 * g for p, g in zip(params, jax.grad(loss)(params), strict=True)]

    params = [_on(layout, (width, width), _P("data"))] * layers
    x = _on(layout, (batch, width), _P("data"), BF16)
    return Made(layout.shard(step, (_P("data"), _P("data")), _P("data")), (params, x), (0,), layout)


def contrastive(devices: int, batch: int, width: int) -> Made:
    """Two towers of one product; each device's images against all texts."""
    layout = Layout((("data", devices),))

    def loss(params: Any, image: Any, text: Any) -> Any:
        a, b = image @ params[0].astype(BF16), text @ params[1].astype(BF16)
        a, b = (
            x * lax.rsqrt(jnp.sum(x.astype(F32) ** 2, -1, keepdims=True)).astype(BF16)
            for x in (a, b)
        )
        scores = (a @ lax.all_gather(b, "data", tiled=True).T).astype(F32) * 10
        place = lax.axis_index("data") * a.shape[0] + jnp.arange(a.shape[0])
        return -lax.pmean(
            jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), place[:, None], 1)), "data"
        )

    run = layout.shard(loss, (_P(), _P("data"), _P("data")), _P())
    params = (_on(layout, (width, 512), _P()),) * 2
    given = (_on(layout, (batch, width), _P("data"), BF16),) * 2
    return Made(jax.value_and_grad(run), (params, *given), (), layout)


def collective(
    fn: Callable[..., Any],
    axes: tuple[tuple[str, int], ...],
    shape: tuple[int, ...],
    into: Any,
    out: Any,
) -> Made:
    """One collective on a mesh."""
    layout = Layout(axes)
    return Made(layout.shard(fn, (into,), out), (_on(layout, shape, into),), (), layout)
