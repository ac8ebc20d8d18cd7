"""Recommendation models, recurrent networks, optimizers, lookups, sorting, narrow products,
loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.language import cross_entropy
from benchmarks.corpus.layout import BF16, F32, I8, I32, ONE, Layout, Made, like, train


def dlrm(
    rows: Sequence[int], width: int, batch: int, optimizer: str = "sgd", layout: Layout = ONE
) -> Made:
    """Embeddings of `rows` tables and 13 numbers, products of all pairs, a perceptron on top; a
    training step, or without an optimizer the forward pass."""

    def run(params: Any, dense: Any, ids: Any) -> Any:
        x = dense.astype(BF16)
        for kernel in params["bottom"]:
            x = jax.nn.relu(x @ kernel.astype(BF16))
        looked = [table[ids[:, at]].astype(BF16) for at, table in enumerate(params["tables"])]
        every = jnp.stack([x, *looked], 1)
        pairs = jnp.einsum("bnd,bmd->bnm", every, every)
        left, right = jnp.triu_indices(every.shape[1], 1)
        y = jnp.concatenate([x, pairs[:, left, right]], -1)
        for kernel in params["top"][:-1]:
            y = jax.nn.relu(y @ kernel.astype(BF16))
        return (y @ params["top"][-1].astype(BF16))[:, 0].astype(F32)

    def loss(params: Any, dense: Any, ids: Any, labels: Any) -> Any:
        logits = run(params, dense, ids)
        return jnp.mean(
            jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))
        )

    count = len(rows) + 1
    array = layout.array
    params = {
        "bottom": [array((13, 512)), array((512, 256)), array((256, width))],
        "tables": [array((size, width), "rows .") for size in rows],
        "top": [array((width + count * (count - 1) // 2, 512)), array((512, 256)), array((256, 1))],
    }
    dense, ids = array((batch, 13), "batch ."), array((batch, len(rows)), "batch .", I32)
    if not optimizer:
        return Made(run, (params, dense, ids), (), layout)
    return train(loss, params, (dense, ids, array((batch,), "batch")), layout, optimizer)


def recurrent(kind: str, width: int, steps: int, batch: int, forward: bool = False) -> Made:
    """An "lstm" or "gru" over time by a scan; squared error of its last state."""
    gates = 4 if kind == "lstm" else 3

    def lstm(state: Any, x: Any, params: Any) -> Any:
        hidden, cell = state
        parts = jnp.split(x + hidden @ params["state"].astype(BF16), 4, -1)
        into, forget, out = (jax.nn.sigmoid(part) for part in parts[:3])
        cell = forget * cell + into * jnp.tanh(parts[3])
        return out * jnp.tanh(cell), cell

    def gru(state: Any, x: Any, params: Any) -> Any:
        (hidden,) = state
        given, own = jnp.split(x, 3, -1), jnp.split(hidden @ params["state"].astype(BF16), 3, -1)
        reset, update = jax.nn.sigmoid(given[0] + own[0]), jax.nn.sigmoid(given[1] + own[1])
        return ((1 - update) * jnp.tanh(given[2] + reset * own[2]) + update * hidden,)

    def run(params: Any, x: Any) -> Any:
        step: Callable[..., Any] = lstm if kind == "lstm" else gru
        given = jnp.einsum("tbd,dg->tbg", x.astype(BF16), params["in"].astype(BF16))
        start = (jnp.zeros((batch, width), BF16),) * (2 if kind == "lstm" else 1)

        def turn(state: Any, x: Any) -> Any:
            state = step(state, x, params)
            return state, state[0]

        return lax.scan(turn, start, given)[1]

    params = {"in": ONE.array((width, gates * width)), "state": ONE.array((width, gates * width))}
    x = ONE.array((steps, batch, width))
    if forward:
        return Made(run, (params, x))
    return train(
        lambda params, x: jnp.mean(jnp.square(run(params, x).astype(F32))),
        params,
        (x,),
        ONE,
        "adam",
    )


def state_space(width: int, state: int, tokens: int, batch: int, gradient: bool = False) -> Made:
    """A diagonal linear recurrence with input-dependent decay, by an associative scan (Mamba,
    S5)."""

    def run(params: Any, x: Any) -> Any:
        decay = jnp.exp(-jax.nn.softplus(x @ params["step"])[..., None] * jnp.exp(params["rates"]))
        given = (x @ params["in"])[:, :, None, :] * x[..., None]

        def both(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[0] * left[1] + right[1]

        _, states = lax.associative_scan(both, (decay, given), axis=1)
        return jnp.einsum("btds,bts->btd", states, x @ params["out"])

    params = {
        "step": ONE.array((width, width)),
        "rates": ONE.array((width, state)),
        "in": ONE.array((width, state)),
        "out": ONE.array((width, state)),
    }
    x = ONE.array((batch, tokens, width))
    if gradient:
        return Made(jax.grad(lambda params, x: jnp.mean(jnp.square(run(params, x)))), (params, x))
    return Made(run, (params, x))


def adafactor(shapes: Sequence[tuple[int, int]]) -> Made:
    """Row and column means of squared gradients in place of second moments; updates clipped by
    their size."""

    def step(params: Any, state: Any, grads: Any) -> Any:
        def one(p: Any, own: Any, g: Any) -> Any:
            square = g * g + 1e-30
            rows, columns = (
                0.99 * own[0] + 0.01 * square.mean(1),
                0.99 * own[1] + 0.01 * square.mean(0),
            )
            update = g * lax.rsqrt(rows / rows.mean())[:, None] * lax.rsqrt(columns)[None]
            update = update / jnp.maximum(1.0, jnp.sqrt(jnp.mean(update * update)))
            return p - 1e-2 * update, (rows, columns)

        made = [one(p, own, g) for p, own, g in zip(params, state, grads, strict=True)]
        return [p for p, _ in made], [own for _, own in made]

    params = [ONE.array(shape) for shape in shapes]
    state = [(ONE.array(shape[:1]), ONE.array(shape[1:])) for shape in shapes]
    return Made(step, (params, state, like(params)), (0, 1))


def lion(shapes: Sequence[tuple[int, ...]], layout: Layout = ONE) -> Made:
    def step(params: Any, state: Any, grads: Any) -> Any:
        signs = jax.tree.map(lambda m, g: jnp.sign(0.9 * m + 0.1 * g.astype(F32)), state, grads)
        params = jax.tree.map(lambda p, s: p - 1e-4 * (s + 0.1 * p), params, signs)
        return params, jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g.astype(F32), state, grads)

    params = [layout.array(shape, "embed " + ". " * (len(shape) - 1)) for shape in shapes]
    return Made(step, (params, like(params), like(params, BF16)), (0, 1), layout)


def adam_tree(shapes: Sequence[tuple[int, ...]], layout: Layout = ONE, clip: bool = False) -> Made:
    """Adam on a tree of parameters, with the norm of all gradients held at one if `clip`."""
    params = [layout.array(shape, "embed " + ". " * (len(shape) - 1)) for shape in shapes]

    def step(state: Any, grads: Any) -> Any:
        params, first, second, count = state
        if clip:
            size = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in grads))
            grads = [g / jnp.maximum(size, 1.0) for g in grads]
        count += 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        rate = 1e-3 * jnp.sqrt(1 - 0.999 ** count.astype(F32)) / (1 - 0.9 ** count.astype(F32))
        return (
            jax.tree.map(
                lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second
            ),
            first,
            second,
            count,
        )

    return Made(
        step,
        ((params, like(params), like(params), layout.array((), "", I32)), like(params)),
        (0,),
        layout,
    )


# --- lookups, sorting, narrow products: a line or two each


def rows_of_table(rows: int, width: int, ids: int, dtype: Any = BF16, layout: Layout = ONE) -> Made:
    given = layout.array((rows, width), "rows .", dtype), layout.array((ids,), "batch", I32)
    return Made(lambda table, ids: table[ids], given, (), layout)


def embedding_step(rows: int, width: int, ids: int, layout: Layout = ONE) -> Made:
    """The gradient of a lookup, applied to the donated table."""

    def step(table: Any, ids: Any, targets: Any) -> Any:
        grad = jax.grad(lambda table: jnp.mean(jnp.square(table[ids] - targets)))(table)
        return table - 0.1 * grad

    array = layout.array
    return Made(
        step,
        (
            array((rows, width), "rows ."),
            array((ids,), "batch", I32),
            array((ids, width), "batch ."),
        ),
        (0,),
        layout,
    )


def scattered(rows: int, width: int, ids: int) -> Made:
    return Made(
        lambda table, ids, more: table.at[ids].add(more),
        (ONE.array((rows, width)), ONE.array((ids,), "", I32), ONE.array((ids, width))),
        (0,),
    )


def cache_update(shape: tuple[int, ...], new: int) -> Made:
    """New rows into a donated cache [batch, room, ...] at a place that is given."""

    def step(cache: Any, rows: Any, at: Any) -> Any:
        return lax.dynamic_update_slice_in_dim(cache, rows, at, 1)

    rows = (shape[0], new, *shape[2:])
    return Made(
        step, (ONE.array(shape, "", BF16), ONE.array(rows, "", BF16), ONE.array((), "", I32)), (0,)
    )


def segments(nodes: int, edges: int, width: int) -> Made:
    """A graph network's layer: sums of neighbours over edges, then a product."""

    def step(params: Any, x: Any, senders: Any, receivers: Any) -> Any:
        sums = jax.ops.segment_sum(x[senders], receivers, nodes)
        return jax.nn.relu(sums @ params[0] + x @ params[1])

    weight, ids = ONE.array((width, width)), ONE.array((edges,), "", I32)
    return Made(step, ((weight, weight), ONE.array((nodes, width)), ids, ids))


def on_array(fn: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = F32) -> Made:
    return Made(fn, tuple(ONE.array(shape, "", dtype) for shape in shapes))


def nucleus(batch: int, vocabulary: int) -> Made:
    """Sampling among the likeliest tokens that make up 0.9: a sort, running sums, a draw."""

    def step(logits: Any, key: Any) -> Any:
        order = jnp.argsort(-logits, -1)
        ranked = jnp.take_along_axis(jax.nn.softmax(logits, -1), order, -1)
        kept = jnp.cumsum(ranked, -1) - ranked < 0.9
        drawn = jax.random.categorical(key, jnp.where(kept, jnp.log(ranked), -jnp.inf))
        return jnp.take_along_axis(order, drawn[:, None], -1)[:, 0]

    return Made(step, (ONE.array((batch, vocabulary)), ONE.array((2,), "", jnp.uint32)))


def narrow_product(m: int, k: int, n: int, dtype: Any, out: Any) -> Made:
    def run(x: Any, w: Any, scale: Any) -> Any:
        return (lax.dot(x, w, preferred_element_type=out).astype(F32) * scale).astype(BF16)

    return Made(run, (ONE.array((m, k), "", dtype), ONE.array((k, n), "", dtype), ONE.array((n,))))


def narrow_weights(m: int, k: int, n: int, layers: int) -> Made:
    """Products with int8 weights that are widened as they are read."""

    def run(x: Any, weights: Any, scales: Any) -> Any:
        for w, scale in zip(weights, scales, strict=True):
            x = jax.nn.relu(x @ (w.astype(BF16) * scale.astype(BF16)))
        return x

    return Made(
        run,
        (
            ONE.array((m, k), "", BF16),
            [ONE.array((k, n), "", I8)] * layers,
            [ONE.array((n,))] * layers,
        ),
    )


def perceptron(
    widths: Sequence[int], batch: int, optimizer: str, layout: Layout = ONE, dtype: Any = F32
) -> Made:
    def loss(params: Any, x: Any, labels: Any) -> Any:
        x = x.astype(BF16)
        for place, (kernel, bias) in enumerate(params):
            x = x @ kernel.astype(BF16) + bias.astype(BF16)
            x = jax.nn.relu(x) if place + 1 < len(params) else x
        return cross_entropy(x, labels)

    params = [
        (
            layout.array((a, b), "mlp embed" if place % 2 else "embed mlp", dtype),
            layout.array((b,), "." if place % 2 else "mlp", dtype),
        )
        for place, (a, b) in enumerate(itertools.pairwise(widths))
    ]
    given = layout.array((batch, widths[0]), "batch ."), layout.array((batch,), "batch", I32)
    return train(loss, params, given, layout, optimizer)


def power_iteration(size: int, turns: int) -> Made:
    """A while loop with a fixed number of turns around a product with a vector."""

    def run(a: Any, v: Any) -> Any:
        def turn(_: Any, v: Any) -> Any:
            v = a @ v
            return v * lax.rsqrt(jnp.sum(v * v))

        return lax.fori_loop(0, turns, turn, v)

    return Made(run, (ONE.array((size, size)), ONE.array((size,))))


def streamed_attention(batch: int, heads: int, tokens: int, head: int, piece: int) -> Made:
    """Attention whose keys come piece by piece in a scan, with running maxima and sums."""

    def run(query: Any, key: Any, value: Any) -> Any:
        pieces = tokens // piece

        def turn(state: Any, pair: Any) -> Any:
            top, total, out = state
            scores = (
                jnp.einsum("bhtd,bhsd->bhts", query, pair[0], preferred_element_type=F32)
                * head**-0.5
            )
            peak = jnp.maximum(top, scores.max(-1))
            shares, old = jnp.exp(scores - peak[..., None]), jnp.exp(top - peak)
            out = out * old[..., None] + jnp.einsum(
                "bhts,bhsd->bhtd", shares.astype(BF16), pair[1]
            ).astype(F32)
            return (peak, total * old + shares.sum(-1), out), None

        cut = [
            jnp.moveaxis(x.reshape(batch, heads, pieces, piece, head), 2, 0) for x in (key, value)
        ]
        start = (
            jnp.full((batch, heads, tokens), -jnp.inf),
            jnp.zeros((batch, heads, tokens)),
            jnp.zeros((batch, heads, tokens, head)),
        )
        (_, total, out), _ = lax.scan(turn, start, (cut[0], cut[1]))
        return (out / total[..., None]).astype(BF16)

    return Made(run, (ONE.array((batch, heads, tokens, head), "", BF16),) * 3)
