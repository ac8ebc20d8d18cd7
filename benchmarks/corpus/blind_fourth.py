"""The fourth blind batch: sharded programs alone, as people split them over eight devices. See
`benchmarks.corpus.blind`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn

from benchmarks.corpus.layout import BF16, F32, I32, Layout, Made, train

_DATA = Layout((("data", 8),), ("data",))
_FSDP = Layout((("data", 8),), ("data", "fsdp"))
_BOTH = Layout((("data", 2), ("model", 4)), ("data", "tensor"))
_THREE = Layout((("data", 4), ("model", 2)), ("data", "fsdp", "tensor"))


def _root(x: Any, scale: Any) -> Any:
    wide = x.astype(F32)
    return (wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5) * scale).astype(
        x.dtype
    )


def _attend(x: Any, other: Any, own: Any, heads: int, causal: bool) -> Any:
    """Attention of x [b, t, w] to other [b, s, w]; weights [w, heads, d] and [heads, d, w]."""
    q, k, v = (
        jnp.einsum("btw,whd->bthd", one, own[name].astype(BF16))
        for one, name in zip((x, other, other), "qkv", strict=True)
    )
    scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(F32) * (x.shape[-1] // heads) ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((x.shape[1], other.shape[1]), bool)), scores, -1e9)
    found = jnp.einsum("bhts,bshd->bthd", nn.softmax(scores).astype(BF16), v)
    return jnp.einsum("bthd,hdw->btw", found, own["o"].astype(BF16))


def _attention(array: Any, width: int, heads: int) -> dict[str, Any]:
    into, out = (width, heads, width // heads), (heads, width // heads, width)
    return {
        **{name: array(into, "embed heads .") for name in "qkv"},
        "o": array(out, "heads . embed"),
    }


def _classifier(layout: Layout) -> Made:
    """Sentences by their first token; learned positions, layer norms with shifts, dropped numbers
    by given masks."""
    width, heads, inner, words, tokens, batch, classes, array = (
        384,
        6,
        1536,
        6000,
        96,
        128,
        20,
        layout.array,
    )

    def centred(x: Any, own: Any) -> Any:
        wide = x.astype(F32)
        wide = wide - wide.mean(-1, keepdims=True)
        return (wide * lax.rsqrt(jnp.var(wide, -1, keepdims=True) + 1e-6) * own[0] + own[1]).astype(
            BF16
        )

    def loss(params: Any, text: Any, kept: Any, labels: Any) -> Any:
        x = (params["words"][text] + params["places"]).astype(BF16)
        for own in params["layers"]:
            x = centred(
                x + _attend(x, x, own["attention"], heads, False) * kept[..., None].astype(BF16),
                own["first"],
            )
            h = nn.gelu(x @ own["up"].astype(BF16) + own["lift"].astype(BF16)) @ own["down"].astype(
                BF16
            )
            x = centred(x + h, own["second"])
        scores = x[:, 0].astype(F32) @ params["out"]
        return -jnp.mean(jnp.take_along_axis(nn.log_softmax(scores), labels[:, None], 1))

    layer = {
        "attention": _attention(array, width, heads),
        "up": array((width, inner), "embed mlp"),
        "lift": array((inner,), "mlp"),
        "down": array((inner, width), "mlp embed"),
        "first": [array((width,), ".")] * 2,
        "second": [array((width,), ".")] * 2,
    }
    params = {
        "words": array((words, width), "vocab embed"),
        "places": array((tokens, width), ". embed"),
        "layers": [layer] * 2,
        "out": array((width, classes), "embed ."),
    }
    text, kept = array((batch, tokens), "batch .", I32), array((batch, tokens), "batch .")
    return train(loss, params, (text, kept, array((batch,), "batch", I32)), layout)


def _translator(layout: Layout) -> Made:
    """One layer that reads, one that writes and looks at what was read; the table of words also
    gives the scores."""
    width, heads, inner, words, tokens, batch, array = 512, 8, 1792, 10240, 128, 64, layout.array

    def gated(x: Any, own: Any) -> Any:
        gate, up, down = (own[name].astype(BF16) for name in ("gate", "up", "down"))
        return (nn.silu(x @ gate) * (x @ up)) @ down

    def loss(params: Any, source: Any, target: Any) -> Any:
        table = params["words"].astype(BF16)
        read, write = params["read"], params["write"]
        x = table[source]
        x = x + _attend(
            _root(x, read["scale"]), _root(x, read["scale"]), read["self"], heads, False
        )
        x = x + gated(_root(x, read["scale"]), read)
        y = table[target[:, :-1]]
        y = y + _attend(
            _root(y, write["scale"]), _root(y, write["scale"]), write["self"], heads, True
        )
        y = y + _attend(_root(y, write["scale"]), x, write["other"], heads, False)
        y = y + gated(_root(y, write["scale"]), write)
        scores = (y @ table.T).astype(F32)
        picked = jnp.take_along_axis(scores, target[:, 1:, None], -1)[..., 0]
        return jnp.mean(nn.logsumexp(scores, -1) - picked)

    layer = {
        "self": _attention(array, width, heads),
        "scale": array((width,), "."),
        "gate": array((width, inner), "embed mlp"),
        "up": array((width, inner), "embed mlp"),
        "down": array((inner, width), "mlp embed"),
    }
    params = {
        "words": array((words, width), "vocab embed"),
        "read": layer,
        "write": {**layer, "other": _attention(array, width, heads)},
    }
    source, target = (
        array((batch, tokens), "batch .", I32),
        array((batch, tokens + 1), "batch .", I32),
    )
    return train(loss, params, (source, target), layout)


def _images(layout: Layout) -> Made:
    """A small residual network with batch norms over all devices, labels that are smoothed,
    momentum."""
    batch, classes, array = 512, 100, layout.array

    def norm(x: Any, own: Any) -> Any:
        wide = x.astype(F32)
        mean, square = wide.mean((0, 1, 2)), (wide * wide).mean((0, 1, 2))
        return ((wide - mean) * lax.rsqrt(square - mean * mean + 1e-5) * own[0] + own[1]).astype(
            BF16
        )

    def conv(x: Any, kernel: Any, stride: int) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, kernel.astype(BF16), (stride, stride), "SAME", dimension_numbers=numbers
        )

    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = conv(images.astype(BF16), params["stem"], 2)
        for own in params["blocks"]:
            h = conv(nn.relu(norm(x, own["first"])), own["in"], 1)
            x = x + conv(nn.relu(norm(h, own["second"])), own["out"], 1)
        scores = x.mean((1, 2)).astype(F32) @ params["head"]
        wanted = nn.one_hot(labels, classes) * 0.9 + 0.1 / classes
        return -jnp.mean((wanted * nn.log_softmax(scores)).sum(-1))

    block = {
        "first": [array((128,), ".")] * 2,
        "second": [array((128,), ".")] * 2,
        "in": array((3, 3, 128, 128), ". . . embed"),
        "out": array((3, 3, 128, 128), ". . embed ."),
    }
    params = {
        "stem": array((3, 3, 3, 128), ". . . embed"),
        "blocks": [block] * 2,
        "head": array((128, classes), "embed ."),
    }
    return train(
        loss,
        params,
        (array((batch, 32, 32, 3), "batch . . ."), array((batch,), "batch", I32)),
        layout,
        "momentum",
    )


def _clipped(layout: Layout) -> Made:
    """Perceptrons whose gradients are scaled to a norm of one, and weights that shrink: AdamW by
    hand."""
    width, inner, batch, array = 640, 2560, 4096, layout.array

    def step(params: Any, first: Any, second: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            h = x
            for up, lift, down in params:
                h = h + nn.relu(h @ up.astype(BF16) + lift.astype(BF16)) @ down.astype(BF16)
            return jnp.mean(jnp.square(h.astype(F32) - y))

        value, grads = jax.value_and_grad(loss)(params)
        size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g / jnp.maximum(size, 1.0), grads)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
        made = jax.tree.map(
            lambda p, m, v: p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * p), params, first, second
        )
        return made, first, second, value, size

    layer = (
        array((width, inner), "embed mlp"),
        array((inner,), "mlp"),
        array((inner, width), "mlp embed"),
    )
    params = [layer] * 3
    data = array((batch, width), "batch .", BF16), array((batch, width), "batch .")
    return Made(step, (params, params, params, *data), (0, 1, 2), layout)


def _decoded(layout: Layout) -> Made:
    """One token for each of many requests, from caches; the best five words of each."""
    width, heads, head, inner, words, batch, seen, array = (
        1024,
        8,
        128,
        2816,
        16384,
        32,
        1024,
        layout.array,
    )

    def step(params: Any, caches: Any, text: Any, at: Any) -> Any:
        x = params["words"][text]
        made = []
        for own, (keys, values) in zip(params["layers"], caches, strict=True):
            h = _root(x, own["scale"])
            q, k, v = (jnp.einsum("bw,whd->bhd", h, own[name]) for name in "qkv")
            keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0, 0))
            values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0, 0))
            scores = jnp.einsum("bhd,bshd->bhs", q, keys).astype(F32) * head**-0.5
            scores = jnp.where(jnp.arange(seen) <= at, scores, -1e9)
            found = jnp.einsum("bhs,bshd->bhd", nn.softmax(scores).astype(BF16), values)
            x = x + jnp.einsum("bhd,hdw->bw", found, own["o"])
            h = _root(x, own["scale"])
            x = x + (nn.silu(h @ own["gate"]) * (h @ own["up"])) @ own["down"]
            made.append((keys, values))
        return jnp.argmax((x @ params["out"]).astype(F32), -1), made

    layer = {
        **{name: array((width, heads, head), "embed heads .", BF16) for name in "qkv"},
        "o": array((heads, head, width), "heads . embed", BF16),
        "gate": array((width, inner), "embed mlp", BF16),
        "up": array((width, inner), "embed mlp", BF16),
        "down": array((inner, width), "mlp embed", BF16),
        "scale": array((width,), ".", BF16),
    }
    params = {
        "words": array((words, width), ". embed", BF16),
        "layers": [layer] * 2,
        "out": array((width, words), "embed vocab", BF16),
    }
    cache = array((batch, seen, heads, head), "batch . heads .", BF16)
    caches = [(cache, cache)] * 2
    return Made(
        step, (params, caches, array((batch,), "batch", I32), array((), "", I32)), (1,), layout
    )


def _encoded(layout: Layout) -> Made:
    """Images into a code and back: the nearest of 1,024 entries of a book, and its gradient
    straight through."""
    width, code, book, batch, array = 1536, 64, 1024, 8192, layout.array

    def loss(params: Any, x: Any) -> Any:
        h = nn.gelu(x.astype(BF16) @ params["in"].astype(BF16))
        z = (h @ params["squeeze"].astype(BF16)).astype(F32)
        far = (
            (z * z).sum(-1, keepdims=True)
            - 2 * z @ params["book"].T
            + (params["book"] ** 2).sum(-1)
        )
        near = params["book"][jnp.argmin(far, -1)]
        kept = jnp.mean(jnp.square(lax.stop_gradient(z) - near)) + 0.25 * jnp.mean(
            jnp.square(z - lax.stop_gradient(near))
        )
        z = (z + lax.stop_gradient(near - z)).astype(BF16)
        made = nn.gelu(z @ params["spread"].astype(BF16)) @ params["out"].astype(BF16)
        return jnp.mean(jnp.square(made.astype(F32) - x)) + kept

    params = {
        "in": array((768, width), "embed mlp"),
        "squeeze": array((width, code), "mlp ."),
        "book": array((book, code), "rows ."),
        "spread": array((code, width), ". mlp"),
        "out": array((width, 768), "mlp embed"),
    }
    return train(loss, params, (array((batch, 768), "batch ."),), layout)


PROGRAMS: dict[str, Callable[[], Made]] = {
    "sentences-train-data8": lambda: _classifier(_DATA),
    "sentences-train-data4-fsdp4-tensor2": lambda: _classifier(_THREE),
    "translator-train-fsdp8": lambda: _translator(_FSDP),
    "translator-train-data2-tensor4": lambda: _translator(_BOTH),
    "residual-train-data8": lambda: _images(_DATA),
    "residual-train-fsdp8": lambda: _images(_FSDP),
    "clipped-train-fsdp8": lambda: _clipped(_FSDP),
    "clipped-train-data2-tensor4": lambda: _clipped(_BOTH),
    "decoded-data2-tensor4": lambda: _decoded(_BOTH),
    "coded-train-data2-tensor4": lambda: _encoded(_BOTH),
    "coded-train-fsdp8": lambda: _encoded(_FSDP),
}
