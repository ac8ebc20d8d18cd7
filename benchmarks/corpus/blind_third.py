"""The third blind batch: what people run in 2026, in the way of the libraries that they take it
from (adapters on a frozen decoder, drafted tokens that are checked, diffusion transformers,
selective scans, two towers). See `benchmarks.corpus.blind`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn

from benchmarks.corpus.layout import BF16, F32, I32, ONE, Layout, Made, like, train

_DATA = Layout((("data", 8),), ("data",))
_SHARDED = Layout((("data", 8),), ("fsdp",))
_EXPERTS = Layout((("data", 2), ("expert", 4)), ("data", "expert"))


def _half(*shape: int) -> Any:
    return ONE.array(shape, "", BF16)


def _root(x: Any, scale: Any) -> Any:
    wide = x.astype(F32)
    return (wide * lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)).astype(BF16) * scale


def _layer_norm(x: Any, own: Any) -> Any:
    wide = x.astype(F32)
    mean = wide.mean(-1, keepdims=True)
    var = jnp.maximum(jnp.mean(wide**2, -1, keepdims=True) - mean**2, 0)
    return ((wide - mean) * lax.rsqrt(var + 1e-6) * own[0] + own[1]).astype(BF16)


def _turned(x: Any, at: Any) -> Any:
    """Rotary positions, halves of a head against each other: [b, t, h, d]."""
    half = x.shape[-1] // 2
    angles = at[..., None, None].astype(F32) * 1e6 ** (-jnp.arange(half, dtype=F32) / half)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    left, right = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1).astype(BF16)


def _grouped(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """[b, t, h, d], [b, s, g, d]: heads of a group read the same keys."""
    b, t, h, d = q.shape
    q = q.reshape(b, t, k.shape[2], -1, d)
    scores = jnp.einsum("btgrd,bsgd->bgrts", q, k, preferred_element_type=F32) * d**-0.5
    shares = nn.softmax(jnp.where(mask, scores, -2.0e38), axis=-1).astype(BF16)
    return jnp.einsum("bgrts,bsgd->btgrd", shares, v).reshape(b, t, h * d)


def _decoder_layer(width: int, queries: int, keys: int, inner: int) -> dict[str, Any]:
    """Parameters: norms, attention with fewer keys than queries, and a gated perceptron."""
    return {
        "norms": [_half(width)] * 2,
        "q": _half(width, queries),
        "k": _half(width, keys),
        "v": _half(width, keys),
        "o": _half(queries, width),
        "gate": _half(width, inner),
        "up": _half(width, inner),
        "down": _half(inner, width),
    }


def _adapted_decoder() -> Made:
    """Adapters on queries and values of a frozen decoder, by Adam; the loss over a part of the
    tokens."""
    layers, width, heads, shared, head, inner, words, batch, tokens, rank = (
        2,
        1024,
        8,
        2,
        128,
        2816,
        20000,
        4,
        512,
        16,
    )
    array = ONE.array

    def loss(adapters: Any, frozen: Any, text: Any, counted: Any) -> Any:
        at = jnp.broadcast_to(jnp.arange(tokens), (batch, tokens))
        x = frozen["words"][text]
        for own, pair in zip(frozen["layers"], adapters, strict=True):
            h = _root(x, own["norms"][0])
            q = h @ own["q"] + 2.0 * ((h @ pair["qa"].astype(BF16)) @ pair["qb"].astype(BF16))
            v = h @ own["v"] + 2.0 * ((h @ pair["va"].astype(BF16)) @ pair["vb"].astype(BF16))
            q = _turned(q.reshape(batch, tokens, heads, head), at)
            k = _turned((h @ own["k"]).reshape(batch, tokens, shared, head), at)
            mixed = _grouped(
                q, k, v.reshape(batch, tokens, shared, head), jnp.tri(tokens, dtype=bool)
            )
            x = x + mixed @ own["o"]
            h = _root(x, own["norms"][1])
            x = x + (nn.silu(h @ own["gate"]) * (h @ own["up"])) @ own["down"]
        logits = (_root(x, frozen["norm"]) @ frozen["words"].T)[:, :-1].astype(F32)
        picked = jnp.take_along_axis(nn.log_softmax(logits), text[:, 1:, None], -1)[..., 0]
        return -(picked * counted[:, 1:]).sum() / counted.sum()

    def step(adapters: Any, state: Any, frozen: Any, text: Any, counted: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(adapters, frozen, text, counted)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], grads)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state[1], grads)
        made = jax.tree.map(
            lambda p, m, v: p - 2e-4 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p),
            adapters,
            first,
            second,
        )
        return made, (first, second), value

    pair = {
        "qa": (width, rank),
        "qb": (rank, width),
        "va": (width, rank),
        "vb": (rank, shared * head),
    }
    adapters = [{name: array(shape) for name, shape in pair.items()}] * layers
    layer = _decoder_layer(width, heads * head, shared * head, inner)
    frozen = {"words": _half(words, width), "layers": [layer] * layers, "norm": _half(width)}
    text = array((batch, tokens), "", I32)
    state = (like(adapters), like(adapters))
    return Made(step, (adapters, state, frozen, text, array((batch, tokens))), (0, 1))


def _checked_draft() -> Made:
    """A draft of five tokens is checked at once by the large model: those that it would have said
    itself are kept."""
    layers, width, heads, shared, head, inner, words = 3, 1536, 12, 4, 128, 4096, 30000
    batch, room, new, array = 8, 1536, 5, ONE.array

    def step(params: Any, keys: Any, values: Any, draft: Any, length: Any) -> Any:
        at = length[:, None] + jnp.arange(new)
        x = params["words"][draft]
        mask = (jnp.arange(room) <= at[..., None])[:, None, None]
        for layer, own in enumerate(params["layers"]):
            h = _root(x, own["norms"][0])
            q = _turned((h @ own["q"]).reshape(batch, new, heads, head), at)
            k = _turned((h @ own["k"]).reshape(batch, new, shared, head), at)
            v = (h @ own["v"]).reshape(batch, new, shared, head)
            put = jax.vmap(
                lambda cache, rows, at: lax.dynamic_update_slice(cache, rows, (at, 0, 0))
            )
            keys[layer], values[layer] = put(keys[layer], k, length), put(values[layer], v, length)
            x = x + _grouped(q, keys[layer], values[layer], mask) @ own["o"]
            h = _root(x, own["norms"][1])
            x = x + (nn.silu(h @ own["gate"]) * (h @ own["up"])) @ own["down"]
        said = jnp.argmax(_root(x, params["norm"]) @ params["head"], -1).astype(I32)
        kept = jnp.cumprod((said[:, :-1] == draft[:, 1:]).astype(I32), axis=1).sum(1)
        return keys, values, jnp.take_along_axis(said, kept[:, None], 1)[:, 0], length + kept + 1

    layer = _decoder_layer(width, heads * head, shared * head, inner)
    params = {"words": _half(words, width), "layers": [layer] * layers, "norm": _half(width)}
    params["head"] = _half(width, words)
    caches = [_half(batch, room, shared, head)] * layers
    return Made(
        step,
        (params, caches, caches, array((batch, new), "", I32), array((batch,), "", I32)),
        (1, 2),
    )


def _patch_classifier() -> Made:
    """A vision transformer with biases, patches by a strided convolution, momentum and smoothed
    labels."""
    width, heads, inner, batch, array = 384, 6, 1536, 24, ONE.array

    def loss(params: Any, images: Any, labels: Any) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        kernel = params["patch"].astype(BF16)
        x = lax.conv_general_dilated(
            images.astype(BF16), kernel, (16, 16), "VALID", dimension_numbers=dims
        )
        x = x.reshape(batch, -1, width) + params["places"].astype(BF16)
        for own in params["layers"]:
            h = _layer_norm(x, own["norms"][0])
            q, k, v = (
                jnp.einsum("btd,dhk->bthk", h, w.astype(BF16)) + b.astype(BF16)
                for w, b in zip(*own["in"], strict=True)
            )
            shares = nn.softmax(jnp.einsum("bthk,bshk->bhts", q / 8.0, k).astype(F32)).astype(BF16)
            mixed = jnp.einsum("bhts,bshk->bthk", shares, v)
            x = x + jnp.einsum("bthk,hkd->btd", mixed, own["out"].astype(BF16))
            h = _layer_norm(x, own["norms"][1])
            h = nn.gelu(h @ own["up"][0].astype(BF16) + own["up"][1].astype(BF16))
            x = x + h @ own["down"][0].astype(BF16) + own["down"][1].astype(BF16)
        logits = x.mean(1).astype(F32) @ params["head"]
        wanted = nn.one_hot(labels, 100) * 0.9 + 0.001
        return -(wanted * nn.log_softmax(logits)).sum(-1).mean()

    layer = {
        "norms": [(array((width,)),) * 2] * 2,
        "in": ([array((width, heads, 64))] * 3, [array((heads, 64))] * 3),
        "out": array((heads, 64, width)),
        "up": (array((width, inner)), array((inner,))),
        "down": (array((inner, width)), array((width,))),
    }
    params = {
        "patch": array((16, 16, 3, width)),
        "places": array((196, width)),
        "head": array((width, 100)),
    }
    images = array((batch, 224, 224, 3))
    return train(
        loss, {**params, "layers": [layer] * 2}, (images, array((batch,), "", I32)), ONE, "momentum"
    )


def _diffusion_transformer() -> Made:
    """Blocks that time and class shift, scale and gate; Adam; latents of 32 x 32 in patches of
    2."""
    width, heads, batch, array = 512, 8, 12, ONE.array

    def loss(params: Any, latent: Any, noise: Any, when: Any, label: Any) -> Any:
        angles = 1000 * when[:, None] * jnp.exp(-jnp.arange(128) * (9.21 / 128))
        time = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1) @ params["time"][0]
        told = nn.silu(nn.silu(time) @ params["time"][1] + params["labels"][label]).astype(BF16)
        mixed = (1 - when)[:, None, None, None] * latent + when[:, None, None, None] * noise
        patches = (
            mixed.reshape(batch, 16, 2, 16, 2, 4)
            .transpose(0, 1, 3, 2, 4, 5)
            .reshape(batch, 256, 16)
        )
        x = patches.astype(BF16) @ params["enter"].astype(BF16) + params["places"].astype(BF16)
        for own in params["layers"]:
            tell, qkv, out, up, down = (
                own[name].astype(BF16) for name in ("tell", "qkv", "out", "up", "down")
            )
            parts = jnp.split((told @ tell)[:, None], 6, -1)
            h = nn.standardize(x, epsilon=1e-6) * (1 + parts[1]) + parts[0]
            q, k, v = jnp.moveaxis((h @ qkv).reshape(batch, 256, 3, heads, 64), 2, 0)
            shares = nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) * 0.125)
            mix = jnp.einsum("bhts,bshd->bthd", shares, v).reshape(batch, 256, width)
            x = x + parts[2] * (mix @ out)
            h = nn.standardize(x, epsilon=1e-6) * (1 + parts[4]) + parts[3]
            x = x + parts[5] * (nn.gelu(h @ up) @ down)
        made = (nn.standardize(x) @ params["leave"].astype(BF16)).astype(F32)
        made = (
            made.reshape(batch, 16, 16, 2, 2, 4).transpose(0, 1, 3, 2, 4, 5).reshape(latent.shape)
        )
        return jnp.mean((made - (noise - latent)) ** 2)

    layer = {
        "tell": array((width, 6 * width)),
        "qkv": array((width, 3 * width)),
        "out": array((width, width)),
        "up": array((width, 4 * width)),
        "down": array((4 * width, width)),
    }
    params = {
        "time": [array((256, width)), array((width, width))],
        "labels": array((1001, width)),
        "enter": array((16, width)),
        "places": array((256, width)),
        "layers": [layer] * 2,
        "leave": array((width, 16)),
    }
    latent = array((batch, 32, 32, 4))
    return train(loss, params, (latent, latent, array((batch,)), array((batch,), "", I32)), ONE)


def _two_experts(layout: Layout) -> Made:
    """Each token goes to its best two of eight gated experts, by products with who goes where."""
    count, groups, tokens, width, inner, room, array = 8, 8, 384, 512, 1408, 120, layout.array

    def loss(params: Any, x: Any) -> Any:
        shares = nn.softmax(x.astype(F32) @ params["router"])
        top, chosen = lax.top_k(shares, 2)
        top = top / top.sum(-1, keepdims=True)
        taken = nn.one_hot(chosen, count, dtype=F32)
        place = (
            jnp.cumsum(taken.reshape(groups, -1, count), 1) * taken.reshape(groups, -1, count) - 1
        ).reshape(taken.shape)
        spread = (nn.one_hot(place.astype(I32), room, dtype=F32) * taken[..., None]).astype(BF16)
        given = jnp.einsum("gtkec,gtd->egcd", spread, x)
        given = layout.keep(given, "expert batch . .")
        gate, up, down = (params[name].astype(BF16) for name in ("gate", "up", "down"))
        h = nn.silu(jnp.einsum("egcd,edf->egcf", given, gate)) * jnp.einsum(
            "egcd,edf->egcf", given, up
        )
        made = layout.keep(jnp.einsum("egcf,efd->egcd", h, down), "expert batch . .")
        back = jnp.einsum("gtkec,egcd->gtd", spread * top[..., None, None].astype(BF16), made)
        even = jnp.mean(shares.mean((0, 1)) * taken.mean((0, 1, 2))) * count
        return jnp.mean(jnp.square((x + back).astype(F32))) + 0.01 * even

    params = {
        "router": array((width, count)),
        "gate": array((count, width, inner), "expert . ."),
        "up": array((count, width, inner), "expert . ."),
        "down": array((count, inner, width), "expert . ."),
    }
    return train(loss, params, (array((groups, tokens, width), "batch . .", BF16),), layout)


def _sliding_window() -> Made:
    """Prefill of two layers whose queries see the last 256 tokens: pieces of the keys, one with the
    one before."""
    layers, width, heads, shared, head, inner, batch, tokens, piece = (
        2,
        1280,
        10,
        2,
        128,
        3456,
        2,
        2048,
        256,
    )

    def near(q: Any, k: Any, v: Any) -> Any:
        def pieces(x: Any) -> Any:
            return x.reshape(batch, tokens // piece, piece, *x.shape[2:])

        def pairs(x: Any) -> Any:
            x = pieces(x)
            return jnp.concatenate(
                [jnp.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0), (0, 0)))[:, :-1], x], 2
            )

        q = pieces(q).reshape(batch, tokens // piece, piece, shared, heads // shared, head)
        scores = (
            jnp.einsum("bnigrd,bnjgd->bngrij", q, pairs(k), preferred_element_type=F32) * head**-0.5
        )
        gap = jnp.arange(piece)[:, None] + piece - jnp.arange(2 * piece)
        first = (jnp.arange(tokens // piece) > 0)[:, None, None] | (jnp.arange(2 * piece) >= piece)
        seen = (gap >= 0) & (gap < piece) & first
        shares = nn.softmax(jnp.where(seen[None, :, None, None], scores, -1e30), -1).astype(BF16)
        return jnp.einsum("bngrij,bnjgd->bnigrd", shares, pairs(v)).reshape(
            batch, tokens, heads * head
        )

    def run(params: Any, x: Any) -> Any:
        at, caches = jnp.broadcast_to(jnp.arange(tokens), (batch, tokens)), []
        for own in params:
            h = _root(x, own["norms"][0])
            q, k, v = jnp.split(h @ own["qkv"], [heads * head, (heads + shared) * head], -1)
            q = _turned(q.reshape(batch, tokens, heads, head), at)
            k = _turned(k.reshape(batch, tokens, shared, head), at)
            v = v.reshape(batch, tokens, shared, head)
            caches.append((k[:, -piece:], v[:, -piece:]))
            x = x + near(q, k, v) @ own["o"]
            h = _root(x, own["norms"][1])
            x = x + (nn.gelu(h @ own["gate"]) * (h @ own["up"])) @ own["down"]
        return x[:, -1], caches

    layer = {
        "norms": [_half(width)] * 2,
        "qkv": _half(width, (heads + 2 * shared) * head),
        "o": _half(heads * head, width),
        "gate": _half(width, inner),
        "up": _half(width, inner),
        "down": _half(inner, width),
    }
    return Made(run, ([layer] * layers, _half(batch, tokens, width)))


def _selective_scan() -> Made:
    """A block like Mamba's, trained: a short convolution over time, then a scan whose gates depend
    on the input."""
    width, inner, state, batch, tokens, array = 512, 1024, 16, 4, 256, ONE.array

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = _layer_norm(x, params["norm"])
        u, gate = jnp.split(h @ params["enter"].astype(BF16), 2, -1)
        padded = jnp.pad(u, ((0, 0), (3, 0), (0, 0)))
        taps = params["taps"].astype(BF16)
        u = nn.silu(sum(padded[:, i : i + tokens] * taps[i] for i in range(4)))
        step, b, c = jnp.split(u @ params["select"].astype(BF16), [32, 32 + state], -1)
        step = nn.softplus((step @ params["step"].astype(BF16)).astype(F32) + params["bias"])
        rate = -jnp.exp(params["rate"])

        def turn(held: Any, now: Any) -> Any:
            u, step, b, c = now
            held = held * jnp.exp(step[..., None] * rate) + (step * u)[..., None] * b[:, None]
            return held, (held * c[:, None]).sum(-1)

        given = tuple(jnp.swapaxes(one.astype(F32), 0, 1) for one in (u, step, b, c))
        made = lax.scan(turn, jnp.zeros((batch, inner, state)), given)[1]
        made = (jnp.swapaxes(made, 0, 1) + u.astype(F32) * params["skip"]).astype(BF16) * nn.silu(
            gate
        )
        return jnp.mean(jnp.square((x + made @ params["leave"].astype(BF16)).astype(F32) - y))

    params = {
        "norm": (array((width,)),) * 2,
        "enter": array((width, 2 * inner)),
        "taps": array((4, inner)),
        "select": array((inner, 32 + 2 * state)),
        "step": array((32, inner)),
        "bias": array((inner,)),
        "rate": array((inner, state)),
        "skip": array((inner,)),
        "leave": array((inner, width)),
    }
    return train(
        loss, params, (_half(batch, tokens, width), array((batch, tokens, width))), ONE, "sgd"
    )


def _two_towers(layout: Layout) -> Made:
    """Images and texts of all devices against each other; towers are perceptrons over means."""
    width, words, tokens, batch, patches, array = 640, 12000, 48, 2048, 49, layout.array

    def tower(x: Any, layers: Any) -> Any:
        for up, down, scale in layers:
            h = x * lax.rsqrt(jnp.mean(x.astype(F32) ** 2, -1, keepdims=True) + 1e-6).astype(BF16)
            h = nn.gelu((h * scale.astype(BF16)) @ up.astype(BF16)) @ down.astype(BF16)
            x = x + h
        x = x.mean(1).astype(F32)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def loss(params: Any, images: Any, text: Any) -> Any:
        seen = tower(images.astype(BF16) @ params["enter"].astype(BF16), params["images"])
        read = tower(params["words"].astype(BF16)[text], params["texts"])
        logits = jnp.exp(params["heat"]) * seen @ read.T
        own = jnp.diagonal(logits)
        return jnp.mean(nn.logsumexp(logits, 0) - own + nn.logsumexp(logits, 1) - own) / 2

    layer = (
        array((width, 4 * width), "embed mlp"),
        array((4 * width, width), "mlp embed"),
        array((width,), "."),
    )
    params = {
        "enter": array((588, width), ". embed"),
        "images": [layer] * 2,
        "words": array((words, width), ". embed"),
        "texts": [layer] * 2,
        "heat": array((), ""),
    }
    images, text = array((batch, patches, 588), "batch . ."), array((batch, tokens), "batch .", I32)
    return train(loss, params, (images, text), layout, "adam")


def _clicks(layout: Layout) -> Made:
    """Two tables in one array, bags by segments, pairs of features by products; batch over devices;
    Adagrad by rows."""
    batch, fields, width, rows, array = 4096, 12, 32, 60000, layout.array

    def loss(params: Any, dense: Any, places: Any, clicks: Any) -> Any:
        x = dense
        for weight, bias in params["bottom"]:
            x = nn.relu(x @ weight + bias)
        found = jnp.take(params["table"], places + jnp.arange(fields) * (rows // fields), axis=0)
        both = jnp.concatenate([x[:, None], found], 1)
        pairs = jnp.einsum("bid,bjd->bij", both, both)
        left, right = jnp.triu_indices(fields + 1, 1)
        x = jnp.concatenate([x, pairs[:, left, right]], -1)
        for weight, bias in params["top"]:
            x = nn.relu(x) @ weight + bias
        logit = x[:, 0]
        return jnp.mean(
            jnp.maximum(logit, 0) - logit * clicks + jnp.log1p(jnp.exp(-jnp.abs(logit)))
        )

    def chain(*widths: int) -> Any:
        return [(array((a, b)), array((b,))) for a, b in itertools.pairwise(widths)]

    pairs = fields * (fields + 1) // 2
    params = {
        "table": array((rows, width)),
        "bottom": chain(13, 256, width),
        "top": chain(width + pairs, 512, 256, 1),
    }
    given = (
        array((batch, 13), "batch ."),
        array((batch, fields), "batch .", I32),
        array((batch,), "batch"),
    )
    return train(loss, params, given, layout, "momentum")


def _large_kernels() -> Made:
    """Convolutions of 7 x 7 of each feature by itself, norms over features, gates over positions;
    forward."""
    dims = ("NHWC", "HWIO", "NHWC")

    def run(params: Any, x: Any) -> Any:
        for stage in params["stages"]:
            kernel, size = stage["enter"], stage["enter"].shape[0]
            x = lax.conv_general_dilated(x, kernel, (size, size), "VALID", dimension_numbers=dims)
            for depth, norm, up, down, scale in stage["blocks"]:
                h = lax.conv_general_dilated(
                    x,
                    depth,
                    (1, 1),
                    "SAME",
                    dimension_numbers=dims,
                    feature_group_count=x.shape[-1],
                )
                h = nn.gelu(_layer_norm(h, norm) @ up)
                norms = jnp.sqrt((h.astype(F32) ** 2).sum((1, 2), keepdims=True))
                h = h * (norms / (norms.mean(-1, keepdims=True) + 1e-6)).astype(BF16) + h
                x = x + scale * (h @ down)
        return x.mean((1, 2)) @ params["head"]

    def block(width: int) -> Any:
        norm = (_half(width), _half(width))
        return (
            _half(7, 7, 1, width),
            norm,
            _half(width, 4 * width),
            _half(4 * width, width),
            _half(width),
        )

    stages = [
        {"enter": _half(4, 4, 3, 96), "blocks": [block(96)]},
        {"enter": _half(2, 2, 96, 192), "blocks": [block(192)] * 2},
    ]
    return Made(run, ({"stages": stages, "head": _half(192, 1000)}, _half(16, 192, 192, 3)))


PROGRAMS: dict[str, Callable[[], Made]] = {
    "adapted-decoder-train": _adapted_decoder,
    "checked-draft": _checked_draft,
    "patch-classifier-train": _patch_classifier,
    "diffusion-transformer-train": _diffusion_transformer,
    "two-experts-train": lambda: _two_experts(ONE),
    "two-experts-train-data2-expert4": lambda: _two_experts(_EXPERTS),
    "sliding-window-prefill": _sliding_window,
    "selective-scan-train": _selective_scan,
    "two-towers-train-data8": lambda: _two_towers(_DATA),
    "two-towers-train-fsdp8": lambda: _two_towers(_SHARDED),
    "clicks-train-data8": lambda: _clicks(_DATA),
    "large-kernels-forward": _large_kernels,
}
