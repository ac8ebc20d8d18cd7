"""The second blind batch: programs of the same families as the public set, written otherwise (fused
weights, gates by themselves, tokens sorted by expert, images with channels first, bags of rows).
See `benchmarks.corpus.blind`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn

from benchmarks.corpus.layout import BF16, F32, I32, ONE, Layout, Made, like, train

_MESH = Layout((("data", 4), ("model", 2)), ("data", "tensor"))
_WIDE = Layout((("data", 2), ("model", 4)), ("fsdp", "tensor"))
_EXPERTS = Layout((("data", 2), ("expert", 4)), ("data", "expert"))


def _standard(x: Any) -> Any:
    return nn.standardize(x.astype(F32), axis=-1, epsilon=1e-5).astype(x.dtype)


def _fused_heads(x: Any, weight: Any, heads: int) -> tuple[Any, Any, Any]:
    """One product for queries, keys and values: [b, t, d] -> three of [b, heads, t, d / heads]."""
    b, t, d = x.shape
    made = (x @ weight).reshape(b, t, 3, heads, d // heads).transpose(2, 0, 3, 1, 4)
    return made[0], made[1], made[2]


def _attended(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """[b, h, t, d] three times -> [b, t, h * d]."""
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5 + bias
    mixed = jnp.matmul(nn.softmax(scores.astype(F32), -1).astype(v.dtype), v)
    b, h, t, d = mixed.shape
    return mixed.transpose(0, 2, 1, 3).reshape(b, t, h * d)


def _parallel_blocks(layout: Layout, layers: int, tokens: int, batch: int) -> Made:
    """Attention and the inner layer read the same norm, side by side; weights of queries, keys and
    values in one."""
    width, heads, inner, words, array = 640, 10, 1920, 6000, layout.array

    def loss(params: Any, text: Any) -> Any:
        causal = jnp.where(jnp.arange(tokens)[:, None] >= jnp.arange(tokens), 0, -1e4).astype(BF16)
        x = jnp.take(params["words"], text[:, :-1], axis=0).astype(BF16)
        for one in params["layers"]:
            qkv, out, up, down = (one[name].astype(BF16) for name in ("qkv", "out", "up", "down"))
            h = _standard(x)
            q, k, v = _fused_heads(h, qkv, heads)
            x = x + _attended(q, k, v, causal) @ out + nn.gelu(h @ up, approximate=True) @ down
            x = layout.keep(x, "batch . .")
        logits = (_standard(x) @ params["head"].astype(BF16)).astype(F32)
        picked = (logits * nn.one_hot(text[:, 1:], words)).sum(-1)
        return jnp.mean(nn.logsumexp(logits, -1) - picked)

    layer = {
        "qkv": array((width, 3 * width), "embed heads"),
        "out": array((width, width), "heads embed"),
        "up": array((width, inner), "embed mlp"),
        "down": array((inner, width), "mlp embed"),
    }
    params = {
        "words": array((words, width), ". embed"),
        "layers": [layer] * layers,
        "head": array((width, words), "embed vocab"),
    }
    return train(loss, params, (array((batch, tokens + 1), "batch .", I32),), layout)


def _generate() -> Made:
    """Twelve tokens one after the other; one array holds all keys and values; what heads share is
    repeated."""
    layers, width, heads, shared, head, room, words, batch = 2, 768, 12, 3, 64, 640, 16000, 4
    array = ONE.array

    def rotated(x: Any, at: Any) -> Any:
        angles = at * 5e5 ** (-jnp.arange(head // 2) / (head // 2))
        even, odd = x[..., ::2], x[..., 1::2]
        turned = (
            even * jnp.cos(angles) - odd * jnp.sin(angles),
            odd * jnp.cos(angles) + even * jnp.sin(angles),
        )
        return jnp.stack(turned, -1).reshape(x.shape).astype(BF16)

    def run(params: Any, cache: Any, token: Any, start: Any) -> Any:
        def turn(step: Any, carry: Any) -> Any:
            cache, token, out = carry
            at = start + step
            x = params["words"][token]
            for layer in range(layers):
                h = _standard(x)
                q = rotated((h @ params["q"][layer]).reshape(batch, heads, head), at)
                k = rotated((h @ params["k"][layer]).reshape(batch, shared, head), at)
                v = (h @ params["v"][layer]).reshape(batch, shared, head)
                cache = lax.dynamic_update_slice(
                    cache, jnp.stack([k, v])[None, :, :, None], (layer, 0, 0, at, 0, 0)
                )
                old_k, old_v = (jnp.repeat(one, heads // shared, axis=2) for one in cache[layer])
                scores = jnp.einsum("bhd,bshd->bhs", q, old_k, preferred_element_type=F32) / 8
                scores = jnp.where(jnp.arange(room) <= at, scores, -jnp.inf)
                mixed = jnp.einsum("bhs,bshd->bhd", nn.softmax(scores).astype(BF16), old_v).reshape(
                    batch, -1
                )
                x = x + mixed @ params["o"][layer]
                gate, up = jnp.split(_standard(x) @ params["in"][layer], 2, axis=-1)
                x = x + (nn.silu(gate) * up) @ params["out"][layer]
            token = jnp.argmax(_standard(x) @ params["words"].T, -1).astype(I32)
            return cache, token, out.at[:, step].set(token)

        return lax.fori_loop(0, 12, turn, (cache, token, jnp.zeros((batch, 12), I32)))

    def many(*shape: int) -> Any:
        return array((layers, *shape), "", BF16)

    params = {
        "words": array((words, width), "", BF16),
        "q": many(width, heads * head),
        "k": many(width, shared * head),
        "v": many(width, shared * head),
        "o": many(heads * head, width),
        "in": many(width, 2 * 2048),
        "out": many(2048, width),
    }
    cache = array((layers, 2, batch, room, shared, head), "", BF16)
    return Made(run, (params, cache, array((batch,), "", I32), array((), "", I32)), (1,))


def _sorted_experts(layout: Layout) -> Made:
    """One expert a token; tokens are put in the order of their experts, each of which has room for
    as many."""
    count, tokens, width, inner = 16, 6144, 512, 1280
    room, array = tokens // count, layout.array

    def step(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            shares = nn.softmax((x @ params["router"].astype(BF16)).astype(F32))
            expert = jnp.argmax(shares, -1)
            order = jnp.argsort(expert)
            given = layout.keep(x[order].reshape(count, room, width), "expert . .")
            h = nn.relu(lax.batch_matmul(given, params["up"].astype(BF16)))
            made = lax.batch_matmul(h, params["down"].astype(BF16)).reshape(tokens, width)
            back = jnp.zeros_like(x).at[order].set(made)
            kept = jnp.take_along_axis(shares, expert[:, None], 1)
            return jnp.mean(jnp.square((x + back).astype(F32) * kept))

        return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params))

    params = {
        "router": array((width, count)),
        "up": array((count, width, inner), "expert . ."),
        "down": array((count, inner, width), "expert . ."),
    }
    return Made(step, (params, array((tokens, width), "batch .", BF16)), (0,), layout)


def _bags_and_crosses() -> Made:
    """Bags of rows are added up, crossed with each other layer by layer; Adagrad."""
    batch, width, fields, bag, array = 1024, 48, 5, 4, ONE.array
    full = fields * width

    def loss(params: Any, places: Any, clicks: Any) -> Any:
        bags = [table[places[:, i]].sum(1) for i, table in enumerate(params["tables"])]
        start = x = jnp.concatenate(bags, -1)
        for weight, bias in params["crosses"]:
            x = start * (x @ weight + bias) + x
        for weight in params["deep"]:
            x = nn.relu(x @ weight)
        logit = x.sum(-1)
        return jnp.mean(nn.softplus(logit) - clicks * logit)

    def step(params: Any, sums: Any, places: Any, clicks: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, places, clicks)
        sums = jax.tree.map(lambda s, g: s + g * g, sums, grads)
        return (
            jax.tree.map(lambda p, g, s: p - 0.05 * g * lax.rsqrt(s + 1e-7), params, grads, sums),
            sums,
            value,
        )

    params = {
        "tables": [array((30000, width))] * fields,
        "crosses": [(array((full, full)), array((full,)))] * 3,
        "deep": [array((full, 400)), array((400, 400))],
    }
    return Made(
        step, (params, like(params), array((batch, fields, bag), "", I32), array((batch,))), (0, 1)
    )


def _noise_predictor() -> Made:
    """Channels first; the way down halves by means, the way up doubles by repeats; the time shifts
    and scales."""
    array, batch = ONE.array, 12

    def conv(x: Any, kernel: Any) -> Any:
        return lax.conv(x, kernel.astype(BF16), (1, 1), "SAME")

    def grouped(x: Any, scale: Any) -> Any:
        b, c, h, w = x.shape
        parts = x.reshape(b, 8, c // 8, h, w).astype(F32)
        mean, var = parts.mean((2, 3, 4), keepdims=True), parts.var((2, 3, 4), keepdims=True)
        return (
            ((parts - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * scale[:, None, None]
        ).astype(x.dtype)

    def block(x: Any, time: Any, own: Any) -> Any:
        h = conv(nn.silu(grouped(x, own["norm"])), own["first"])
        h = h * (1 + (time @ own["time"])[..., None, None].astype(BF16))
        h = conv(nn.silu(h), own["second"])
        return h + (conv(x, own["skip"]) if "skip" in own else x)

    def loss(params: Any, image: Any, noise: Any, when: Any) -> Any:
        angles = when[:, None] * jnp.exp(-jnp.arange(32) / 4.0)
        time = nn.silu(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], 1) @ params["time"])
        share = jnp.cos(when)[:, None, None, None]
        x = conv((share * image + jnp.sqrt(1 - share**2) * noise).astype(BF16), params["enter"])
        held = block(x, time, params["down"])
        b, c, h, w = held.shape
        x = held.reshape(b, c, h // 2, 2, w // 2, 2).mean((3, 5))
        x = block(x, time, params["deep"])
        x = jnp.repeat(jnp.repeat(x, 2, 2), 2, 3)
        x = block(jnp.concatenate([x, held], 1), time, params["up"])
        return jnp.mean(jnp.square(conv(nn.silu(x), params["leave"]).astype(F32) - noise))

    def own(before: int, after: int) -> dict[str, Any]:
        made = {
            "norm": array((before,)),
            "first": array((after, before, 3, 3)),
            "time": array((64, after)),
            "second": array((after, after, 3, 3)),
        }
        return made | ({"skip": array((after, before, 1, 1))} if before != after else {})

    params = {
        "time": array((64, 64)),
        "enter": array((96, 3, 3, 3)),
        "down": own(96, 96),
        "deep": own(96, 160),
        "up": own(256, 96),
        "leave": array((3, 96, 3, 3)),
    }
    images = array((batch, 3, 40, 40))
    return train(loss, params, (images, images, array((batch,))), ONE)


def _dense_images() -> Made:
    """Each convolution reads what all before it made; strided convolutions and channel gates
    between the stages."""
    array, growth = ONE.array, 40

    def loss(params: Any, x: Any, label: Any) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        x = x.astype(BF16)
        for stage in params["stages"]:
            for scale, kernel in stage["convs"]:
                h = nn.relu(x * scale.astype(BF16))
                h = lax.conv_general_dilated(
                    h, kernel.astype(BF16), (1, 1), "SAME", dimension_numbers=dims
                )
                x = jnp.concatenate([x, h], -1)
            gate = nn.sigmoid(
                nn.relu(x.mean((1, 2)) @ stage["less"].astype(BF16)) @ stage["more"].astype(BF16)
            )
            x = x * gate[:, None, None]
            x = lax.conv_general_dilated(
                x, stage["half"].astype(BF16), (2, 2), "SAME", dimension_numbers=dims
            )
        logits = (x.mean((1, 2)) @ params["head"].astype(BF16)).astype(F32)
        return -jnp.mean(nn.log_softmax(logits)[jnp.arange(x.shape[0]), label])

    def stage(before: int, after: int) -> dict[str, Any]:
        counts = [before + growth * i for i in range(2)]
        full = before + 2 * growth
        return {
            "convs": [(array((c,)), array((3, 3, c, growth))) for c in counts],
            "less": array((full, full // 4)),
            "more": array((full // 4, full)),
            "half": array((2, 2, full, after)),
        }

    params = {"stages": [stage(24, 88), stage(88, 144)], "head": array((144, 50))}
    return train(loss, params, (array((40, 48, 48, 24)), array((40,), "", I32)), ONE, "momentum")


def _two_ways_lstm() -> Made:
    """Forward and backward in time, one product for each gate, time first; both ways are joined."""
    steps, batch, width, array = 48, 96, 320, ONE.array

    def one_way(own: Any, x: Any, backward: bool) -> Any:
        def cell(carry: Any, now: Any) -> Any:
            h, c = carry

            def gate(name: str) -> Any:
                read, back, bias = own[name]
                return now @ read.astype(BF16) + h @ back.astype(BF16) + bias.astype(BF16)

            c = nn.sigmoid(gate("forget")) * c + nn.sigmoid(gate("enter")) * jnp.tanh(gate("new"))
            h = nn.sigmoid(gate("leave")) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((batch, width), BF16)
        return lax.scan(cell, (start, start), x, reverse=backward)[1]

    def loss(params: Any, x: Any, y: Any) -> Any:
        x = x.astype(BF16)
        for ways in params:
            x = jnp.concatenate([one_way(own, x, place == 1) for place, own in enumerate(ways)], -1)
        return jnp.mean(jnp.square(x[-1].astype(F32) - y))

    def own(before: int) -> dict[str, Any]:
        gate = array((before, width)), array((width, width)), array((width,))
        return dict.fromkeys(("forget", "enter", "new", "leave"), gate)

    params = [[own(200)] * 2]
    return train(loss, params, (array((steps, batch, 200)), array((batch, 2 * width))), ONE, "sgd")


def _clipped_factors() -> Made:
    """Gradients are clipped by their joint norm; second moments are rows and columns, first ones in
    bfloat16."""
    array, shapes = ONE.array, [(1100, 3000), (3000, 1100), (1100, 1100), (9000, 1100)]

    def step(params: Any, grads: Any, first: Any, rows: Any, columns: Any) -> Any:
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in grads))
        made = []
        for p, g, m, r, c in zip(params, grads, first, rows, columns, strict=True):
            g = g * jnp.minimum(1.0, 1.0 / norm)
            square = g * g + 1e-30
            r, c = 0.99 * r + 0.01 * square.mean(1), 0.99 * c + 0.01 * square.mean(0)
            u = g * lax.rsqrt(r / r.mean())[:, None] * lax.rsqrt(c)
            u = u / jnp.maximum(1.0, jnp.sqrt(jnp.mean(u * u)))
            m = (0.9 * m.astype(F32) + 0.1 * u).astype(BF16)
            made.append((p - 1e-2 * m.astype(F32) - 1e-4 * p, m, r, c))
        return made

    many = [array(shape) for shape in shapes]
    state = (
        [array(s, "", BF16) for s in shapes],
        [array(s[:1]) for s in shapes],
        [array(s[1:]) for s in shapes],
    )
    return Made(step, (many, many, *state), (0, 2, 3, 4))


def _shared_keys(layout: Layout) -> Made:
    """Llama-like training: three heads read one key; weights in two dimensions, split along both
    axes of the mesh."""
    width, heads, shared, head, inner, words, tokens, batch = 768, 12, 4, 64, 2304, 8000, 192, 32
    array = layout.array

    def root(x: Any, scale: Any) -> Any:
        return (
            x
            * lax.rsqrt(jnp.mean(jnp.square(x.astype(F32)), -1, keepdims=True) + 1e-5).astype(BF16)
            * scale
        )

    def loss(params: Any, text: Any, target: Any) -> Any:
        angles = jnp.arange(tokens)[:, None] * 1e4 ** (-jnp.arange(0, head, 2) / head)
        turn = jnp.cos(angles).astype(BF16), jnp.sin(angles).astype(BF16)

        def rotated(x: Any) -> Any:  # [b, h, t, d]
            a, b = jnp.split(x, 2, -1)
            return jnp.concatenate([a * turn[0] - b * turn[1], a * turn[1] + b * turn[0]], -1)

        x = params["words"].astype(BF16)[text]
        for one in params["layers"]:
            q, k, v, o, gate, up, down = (w.astype(BF16) for w in one["weights"])
            h = root(x, one["scales"][0].astype(BF16))
            split = [(h @ w).reshape(batch, tokens, -1, head).swapaxes(1, 2) for w in (q, k, v)]
            near, far = rotated(split[0]), rotated(split[1])
            near = near.reshape(batch, shared, heads // shared, tokens, head)
            scores = jnp.einsum("bgrtd,bgsd->bgrts", near, far).astype(F32) / 8.0
            scores = jnp.where(jnp.tri(tokens, dtype=bool), scores, -1e30)
            mixed = jnp.einsum("bgrts,bgsd->btgrd", nn.softmax(scores, -1).astype(BF16), split[2])
            x = x + mixed.reshape(batch, tokens, heads * head) @ o
            h = root(x, one["scales"][1].astype(BF16))
            x = layout.keep(x + (nn.silu(h @ gate) * (h @ up)) @ down, "batch . .")
        logits = jnp.dot(x, params["head"].astype(BF16), preferred_element_type=F32)
        top = logits.max(-1, keepdims=True)
        total = (
            jnp.log(jnp.exp(logits - lax.stop_gradient(top)).sum(-1))
            + lax.stop_gradient(top)[..., 0]
        )
        return (total - jnp.take_along_axis(logits, target[..., None], -1)[..., 0]).mean()

    weights = [
        array((width, heads * head), "embed heads"),
        *[array((width, shared * head), "embed heads")] * 2,
        array((heads * head, width), "heads embed"),
        *[array((width, inner), "embed mlp")] * 2,
        array((inner, width), "mlp embed"),
    ]
    params = {
        "words": array((words, width), "vocab embed"),
        "layers": [{"weights": weights, "scales": [array((width,))] * 2}],
        "head": array((width, words), "embed vocab"),
    }
    text = array((batch, tokens), "batch .", I32)
    return train(loss, params, (text, text), layout, "momentum")


def _image_tokens() -> Made:
    """A transformer over patches: forward in bfloat16, heads by vmap, one token collects the
    answer."""
    width, heads, batch, array = 576, 9, 20, ONE.array

    def run(params: Any, images: Any) -> Any:
        patches = images.reshape(batch, 14, 12, 14, 12, 3).swapaxes(2, 3).reshape(batch, 196, 432)
        x = patches.astype(BF16) @ params["enter"]
        x = (
            jnp.concatenate([jnp.broadcast_to(params["first"], (batch, 1, width)), x], 1)
            + params["places"]
        )

        def head(x: Any, q: Any, k: Any, v: Any) -> Any:
            return nn.softmax((x @ q) @ (x @ k).T / 8.0) @ (x @ v)

        heads_of = jax.vmap(jax.vmap(head, (None, 0, 0, 0)), (0, None, None, None))
        for q, k, v, o, up, down in params["layers"]:
            x = x + jnp.einsum("bhtd,hdm->btm", heads_of(_standard(x), q, k, v), o)
            x = x + jnp.square(nn.relu(_standard(x) @ up)) @ down
        return x[:, 0] @ params["leave"]

    def half(*shape: int) -> Any:
        return array(shape, "", BF16)

    layer = (
        *[half(heads, width, 64)] * 3,
        half(heads, 64, width),
        half(width, 2304),
        half(2304, width),
    )
    params = {
        "enter": half(432, width),
        "first": half(1, 1, width),
        "places": half(197, width),
        "layers": [layer] * 2,
        "leave": half(width, 1000),
    }
    return Made(run, (params, array((batch, 168, 168, 3))))


PROGRAMS: dict[str, Callable[[], Made]] = {
    "parallel-blocks-train": lambda: _parallel_blocks(ONE, 3, 160, 12),
    "parallel-blocks-train-data4-tensor2": lambda: _parallel_blocks(_MESH, 2, 160, 32),
    "generate-12": _generate,
    "sorted-experts-train": lambda: _sorted_experts(ONE),
    "sorted-experts-train-data2-expert4": lambda: _sorted_experts(_EXPERTS),
    "bags-and-crosses-train": _bags_and_crosses,
    "noise-predictor-train": _noise_predictor,
    "dense-images-train": _dense_images,
    "two-ways-lstm-train": _two_ways_lstm,
    "clipped-factors": _clipped_factors,
    "shared-keys-train-fsdp2-tensor4": lambda: _shared_keys(_WIDE),
    "image-tokens-forward": _image_tokens,
}
