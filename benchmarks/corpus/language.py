"""Transformers over tokens: GPT-like, llama-like with a cache of keys and values, mixtures of
experts."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.layout import BF16, F32, I32, ONE, Layout, Made, train


@dataclasses.dataclass(frozen=True)
class Size:
    """`groups`: heads of keys and values; 0 for as many as heads. `experts`: 0 for a dense
    block."""

    width: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    tokens: int
    groups: int = 0
    experts: int = 0
    head: int = 0

    @property
    def head_width(self) -> int:
        return self.head or self.width // self.heads

    @property
    def key_heads(self) -> int:
        return self.groups or self.heads


TINY = Size(256, 2, 4, 1024, 1024, 128)
SMALL = Size(512, 4, 8, 2048, 8192, 256)
MEDIUM = Size(1024, 6, 16, 4096, 32000, 512)
LARGE = Size(2048, 8, 16, 8192, 32000, 1024)
SEVEN_BILLION = Size(4096, 32, 32, 11008, 32000, 2048)


def norm(x: Any, scale: Any, centred: bool) -> Any:
    """Layer norm, or with `centred` false the root-mean-square norm, in float32."""
    wide = x.astype(F32)
    if centred:
        wide = wide - wide.mean(-1, keepdims=True)
    wide = wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def rotate(x: Any, positions: Any) -> Any:
    """Rotary positions on x [batch, tokens, heads, head]; `positions` [tokens] or [batch,
    tokens]."""
    half = x.shape[-1] // 2
    angles = positions[..., None].astype(F32) * (10000.0 ** (-jnp.arange(half, dtype=F32) / half))
    cos, sin = jnp.cos(angles)[..., None, :], jnp.sin(angles)[..., None, :]
    left, right = x[..., :half].astype(F32), x[..., half:].astype(F32)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1).astype(x.dtype)


def cross_entropy(logits: Any, targets: Any) -> Any:
    return -jnp.mean(
        jnp.take_along_axis(jax.nn.log_softmax(logits.astype(F32)), targets[..., None], -1)
    )


@dataclasses.dataclass(frozen=True)
class Transformer:
    """`llama`: root-mean-square norm, rotary positions, gated inner layer, untied output; otherwise
    GPT-2's ways. `scan`: the layers are stacked and run in a loop. `remat`: only a block's input is
    kept for the backward pass."""

    size: Size
    layout: Layout = ONE
    llama: bool = False
    scan: bool = False
    remat: bool = False
    dtype: Any = F32  # of the parameters; products are always of bfloat16

    def params(self) -> Any:
        size, array = self.size, self.layout.array
        stacked = (
            [self._block(True)] if self.scan else [self._block(False) for _ in range(size.layers)]
        )
        tree = {
            "table": array((size.vocabulary, size.width), "vocab embed", self.dtype),
            "blocks": stacked[0] if self.scan else stacked,
            "norm": array((size.width,)),
        }
        if self.llama:
            return tree | {"out": array((size.width, size.vocabulary), "embed vocab", self.dtype)}
        return tree | {"positions": array((size.tokens, size.width), ". embed", self.dtype)}

    def _block(self, stacked: bool) -> dict[str, Any]:
        size, width = self.size, self.size.width

        def array(shape: tuple[int, ...], names: str, dtype: Any = self.dtype) -> Any:
            return self.layout.array(
                (size.layers, *shape) if stacked else shape,
                ". " + names if stacked else names,
                dtype,
            )

        experts, named = ((size.experts,), "expert ") if size.experts else ((), "")
        block = {
            "norm1": array((width,), ".", F32),
            "norm2": array((width,), ".", F32),
            "query": array((width, size.heads, size.head_width), "embed heads ."),
            "key": array((width, size.key_heads, size.head_width), "embed heads ."),
            "value": array((width, size.key_heads, size.head_width), "embed heads ."),
            "leave": array((size.heads, size.head_width, width), "heads . embed"),
            "up": array((*experts, width, size.inner), named + "embed mlp"),
            "down": array((*experts, size.inner, width), named + "mlp embed"),
        }
        if self.llama:
            block["gate"] = array((*experts, width, size.inner), named + "embed mlp")
        if size.experts:
            block["router"] = array((width, size.experts), "embed .")
        return block

    def attend(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        """query [b, t, heads, head], key and value [b, s, groups, head]; `mask` is added to [t,
        s]."""
        b, t, heads, head = query.shape
        query = query.reshape(b, t, key.shape[2], heads // key.shape[2], head)
        scores = (
            jnp.einsum("btgrh,bsgh->bgrts", query, key, preferred_element_type=F32) * head**-0.5
        )
        shares = jax.nn.softmax(scores + mask, axis=-1).astype(BF16)
        return jnp.einsum("bgrts,bsgh->btgrh", shares, value).reshape(b, t, heads, head)

    def block(
        self,
        x: Any,
        own: Any,
        positions: Any = None,
        mask: Any = None,
        cache: Any = None,
        at: Any = None,
    ) -> Any:
        """x [b, t, width] -> the same, and the cache with this block's keys and values at position
        `at`."""
        keep, llama = self.layout.keep, self.llama
        cast = {name: leaf.astype(BF16) for name, leaf in own.items()}
        h = norm(x, own["norm1"], not llama)
        query, key, value = (
            jnp.einsum("btd,dnh->btnh", h, cast[name]) for name in ("query", "key", "value")
        )
        if llama:
            query, key = rotate(query, positions), rotate(key, positions)
        query, key, value = (keep(part, "batch . heads .") for part in (query, key, value))
        if cache is not None:
            key, value = (
                lax.dynamic_update_slice_in_dim(old, new, at, 1)
                for old, new in zip(cache, (key, value), strict=True)
            )
            cache = (key, value)
        attended = self.attend(query, key, value, mask)
        x = keep(x + jnp.einsum("btnh,nhd->btd", attended, cast["leave"]), "batch tokens .")
        h = norm(x, own["norm2"], not llama)
        out = self.experts(h, cast) if self.size.experts else self.dense(h, cast)
        return keep(x + out, "batch tokens ."), cache

    def dense(self, h: Any, own: Any) -> Any:
        up = h @ own["up"]
        inner = jax.nn.silu(h @ own["gate"]) * up if self.llama else jax.nn.gelu(up)
        return self.layout.keep(inner, "batch . mlp") @ own["down"]

    def experts(self, h: Any, own: Any) -> Any:
        """Two experts a token, dispatched by products with one-hot rows, with room for a quarter
        more than the mean."""
        b, t, _ = h.shape
        count, keep = self.size.experts, self.layout.keep
        room = max(4, 2 * t * 5 // 4 // count)
        shares, chosen = lax.top_k(jax.nn.softmax((h @ own["router"]).astype(F32)), 2)
        hot = jax.nn.one_hot(chosen, count, dtype=F32)  # [b, t, 2, experts]
        place = jnp.cumsum(hot.reshape(b, 2 * t, count), 1).reshape(hot.shape) * hot - 1
        slots = jax.nn.one_hot(place.astype(I32), room, dtype=F32)  # [b, t, 2, experts, room]
        combine = jnp.einsum("btk,btke,btker->bter", shares, hot, slots)
        given = keep(jnp.einsum("bter,btd->ebrd", (combine > 0).astype(BF16), h), "expert . . .")
        inner = jnp.einsum("ebrd,edf->ebrf", given, own["up"])
        if self.llama:
            inner = jax.nn.silu(jnp.einsum("ebrd,edf->ebrf", given, own["gate"])) * inner
        else:
            inner = jax.nn.gelu(inner)
        made = keep(jnp.einsum("ebrf,efd->ebrd", inner, own["down"]), "expert . . .")
        return jnp.einsum("bter,ebrd->btd", combine.astype(BF16), made)

    def run(self, params: Any, tokens: Any) -> Any:
        """Logits [b, t, vocabulary] of tokens [b, t]."""
        t = tokens.shape[1]
        x = params["table"][tokens].astype(BF16)
        if not self.llama:
            x = x + params["positions"][:t].astype(BF16)
        x = self.layout.keep(x, "batch tokens .")
        mask = jnp.where(jnp.tril(jnp.ones((t, t), bool)), 0.0, -1e9)

        def one(x: Any, own: Any) -> Any:
            return self.block(x, own, jnp.arange(t), mask)[0]

        step = jax.checkpoint(one) if self.remat else one
        if self.scan:
            x, _ = lax.scan(lambda x, own: (step(x, own), None), x, params["blocks"])
        else:
            for own in params["blocks"]:
                x = step(x, own)
        return self.logits(params, x)

    def logits(self, params: Any, x: Any) -> Any:
        x = norm(x, params["norm"], not self.llama)
        if self.llama:
            return x @ params["out"].astype(BF16)
        return jnp.einsum("btd,vd->btv", x, params["table"].astype(BF16))

    def loss(self, params: Any, tokens: Any) -> Any:
        return cross_entropy(self.run(params, tokens[:, :-1]), tokens[:, 1:])

    # --- programs

    def forward(self, batch: int) -> Made:
        tokens = self.layout.array((batch, self.size.tokens), "batch .", I32)
        return Made(self.run, (self.params(), tokens), (), self.layout)

    def training(self, batch: int, optimizer: str = "adam") -> Made:
        tokens = self.layout.array((batch, self.size.tokens + 1), "batch .", I32)
        return train(self.loss, self.params(), (tokens,), self.layout, optimizer)

    def cache(self, batch: int, room: int) -> Any:
        shape = (batch, room, self.size.key_heads, self.size.head_width)
        if self.scan:
            return (self.layout.array((self.size.layers, *shape), ". batch . heads .", BF16),) * 2
        return [
            (self.layout.array(shape, "batch . heads .", BF16),) * 2
            for _ in range(self.size.layers)
        ]

    def decode(self, batch: int, room: int, new: int = 1) -> Made:
        """`new` tokens for each row of the batch against a donated cache with `room`; greedy."""

        def step(params: Any, cache: Any, tokens: Any, at: Any) -> Any:
            x = params["table"][tokens].astype(BF16)
            positions = at + jnp.arange(new)
            mask = jnp.where(jnp.arange(room) <= positions[:, None], 0.0, -1e9)
            if self.scan:
                x, cache = lax.scan(
                    lambda x, pair: self.block(x, pair[0], positions, mask, pair[1], at),
                    x,
                    (params["blocks"], cache),
                )
            else:
                made = []
                for own, kept in zip(params["blocks"], cache, strict=True):
                    x, kept = self.block(x, own, positions, mask, kept, at)
                    made.append(kept)
                cache = made
            return jnp.argmax(self.logits(params, x[:, -1:]), -1), cache

        array = self.layout.array
        args = (
            self.params(),
            self.cache(batch, room),
            array((batch, new), "batch .", I32),
            array((), "", I32),
        )
        return Made(step, args, (1,), self.layout)
