"""Convolution networks, vision transformers and the U-Net of a diffusion model."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.language import cross_entropy, norm
from benchmarks.corpus.layout import BF16, F32, I32, ONE, Layout, Made, train


def conv(x: Any, kernel: Any, stride: int = 1, groups: int = 1, padding: str = "SAME") -> Any:
    """`kernel` [window..., features / groups, features] over x [batch, space..., features], in
    bfloat16."""
    space = "DHW"[-(x.ndim - 2) :]
    numbers = (f"N{space}C", f"{space}IO", f"N{space}C")
    return lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        (stride,) * len(space),
        padding,
        dimension_numbers=numbers,
        feature_group_count=groups,
    )


def group_norm(x: Any, own: Any, groups: int) -> Any:
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups).astype(F32)
    mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    return (
        ((parts - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape) * own[0] + own[1]
    ).astype(x.dtype)


def batch_norm(x: Any, own: Any) -> Any:
    axes = tuple(range(x.ndim - 1))
    wide = x.astype(F32)
    mean = wide.mean(axes)
    scale = own[0] * lax.rsqrt((wide * wide).mean(axes) - mean * mean + 1e-5)
    return ((wide - mean) * scale + own[1]).astype(x.dtype)


def classifier(body: Callable[..., Any]) -> Callable[..., Any]:
    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = body(params, images.astype(BF16))
        x = x.mean(tuple(range(1, x.ndim - 1)))
        return cross_entropy(x.astype(F32) @ params["out"], labels)

    return loss


def images(layout: Layout, batch: int, *shape: int) -> tuple[Any, Any]:
    return (
        layout.array((batch, *shape), "batch " + ". " * len(shape), F32),
        layout.array((batch,), "batch", I32),
    )


@dataclasses.dataclass(frozen=True)
class Stages:
    """A network of stages, each half as large as the one before: `plain` residual blocks (ResNet),
    `grouped` ones (ResNeXt), `depthwise` separable ones (MobileNet), or `next` blocks with a wide
    depthwise window (ConvNeXt)."""

    kind: str
    widths: Sequence[int]
    blocks: int
    batch: int
    size: int
    stem: tuple[int, int] = (3, 2)  # window and stride
    groups: int = 32
    layout: Layout = ONE

    def _block_shapes(self, width: int) -> list[tuple[int, ...]]:
        return {
            "plain": [(3, 3, width, width), (3, 3, width, width)],
            "grouped": [
                (1, 1, width, width),
                (3, 3, width // self.groups, width),
                (1, 1, width, width),
            ],
            "depthwise": [(1, 1, width, 4 * width), (3, 3, 1, 4 * width), (1, 1, 4 * width, width)],
            "next": [(7, 7, 1, width), (1, 1, width, 4 * width), (1, 1, 4 * width, width)],
        }[self.kind]

    def params(self) -> Any:
        array, made = self.layout.array, []
        before = self.widths[0]
        for width in self.widths:
            blocks = [
                [
                    (array(shape), (array(shape[-1:]), array(shape[-1:])))
                    for shape in self._block_shapes(width)
                ]
                for _ in range(self.blocks)
            ]
            made.append({"down": array((2, 2, before, width)), "blocks": blocks})
            before = width
        stem = array((self.stem[0], self.stem[0], 3, self.widths[0]))
        return {"stem": stem, "stages": made, "out": array((before, 1000))}

    def body(self, params: Any, x: Any) -> Any:
        x = conv(x, params["stem"], self.stem[1])
        for number, stage in enumerate(params["stages"]):
            x = conv(x, stage["down"], 2 if number else 1)
            for block in stage["blocks"]:
                y = x
                for place, (kernel, scales) in enumerate(block):
                    groups = y.shape[-1] // kernel.shape[-2]
                    y = batch_norm(conv(y, kernel, groups=groups), scales)
                    y = jax.nn.relu(y) if place + 1 < len(block) else y
                x = jax.nn.relu(x + y)
        return x

    def training(self, optimizer: str = "momentum") -> Made:
        shape = (self.size, self.size, 3)
        return train(
            classifier(self.body),
            self.params(),
            images(self.layout, self.batch, *shape),
            self.layout,
            optimizer,
        )

    def forward(self) -> Made:
        pixels, _ = images(self.layout, self.batch, self.size, self.size, 3)
        return Made(
            lambda params, x: self.body(params, x.astype(BF16)),
            (self.params(), pixels),
            (),
            self.layout,
        )


def vgg(widths: Sequence[int], batch: int, size: int, channels: int = 3, window: int = 3) -> Made:
    """Convolutions with biases, pooled by maxima; the first sees few channels."""

    def body(params: Any, x: Any) -> Any:
        for kernel, bias in params["layers"]:
            x = jax.nn.relu(conv(x, kernel) + bias.astype(x.dtype))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x

    before, layers = channels, []
    for width in widths:
        layers.append((ONE.array((window, window, before, width)), ONE.array((width,))))
        before = width
    params = {"layers": layers, "out": ONE.array((before, 10))}
    return train(classifier(body), params, images(ONE, batch, size, size, channels), ONE, "adam")


def video(batch: int, frames: int, size: int, widths: Sequence[int], forward: bool = False) -> Made:
    """3-D convolutions over [batch, frames, size, size, 3]."""

    def body(params: Any, x: Any) -> Any:
        for kernel, scales in params["layers"]:
            x = jax.nn.relu(batch_norm(conv(x, kernel, 2), scales))
        return x

    before, layers = 3, []
    for width in widths:
        layers.append(
            (ONE.array((3, 3, 3, before, width)), (ONE.array((width,)), ONE.array((width,))))
        )
        before = width
    params = {"layers": layers, "out": ONE.array((before, 400))}
    given = images(ONE, batch, frames, size, size, 3)
    if forward:
        return Made(lambda params, x: body(params, x.astype(BF16)), (params, given[0]))
    return train(classifier(body), params, given, ONE, "momentum")


def autoencoder(batch: int, size: int, width: int) -> Made:
    """Strided convolutions down, transposed ones up; squared error."""

    def loss(params: Any, x: Any, _labels: Any) -> Any:
        y = x.astype(BF16)
        for kernel in params["down"]:
            y = jax.nn.silu(conv(y, kernel, 2))
        for kernel in params["up"]:
            y = lax.conv_transpose(jax.nn.silu(y), kernel.astype(BF16), (2, 2), "SAME")
        return jnp.mean(jnp.square(y.astype(F32) - x))

    widths = (3, width, 2 * width, 4 * width)
    pairs = list(itertools.pairwise(widths))
    params = {
        "down": [ONE.array((4, 4, low, high)) for low, high in pairs],
        "up": [ONE.array((4, 4, high, low)) for low, high in reversed(pairs)],
    }
    return train(loss, params, images(ONE, batch, size, size, 3), ONE, "adam")


@dataclasses.dataclass(frozen=True)
class Vit:
    """A vision transformer on patches; the layers are run in a loop."""

    width: int
    layers: int
    heads: int
    batch: int
    size: int = 224
    patch: int = 16
    layout: Layout = ONE

    def params(self) -> Any:
        array, d, n = self.layout.array, self.width, self.layers
        return {
            "patch": array((self.patch, self.patch, 3, d)),
            "positions": array(((self.size // self.patch) ** 2, d)),
            "blocks": {
                "norm1": array((n, d)),
                "norm2": array((n, d)),
                "in": array((n, d, 3, self.heads, d // self.heads), ". embed . heads ."),
                "leave": array((n, self.heads, d // self.heads, d), ". heads . embed"),
                "up": array((n, d, 4 * d), ". embed mlp"),
                "down": array((n, 4 * d, d), ". mlp embed"),
            },
            "out": array((d, 1000)),
        }

    def body(self, params: Any, x: Any) -> Any:
        x = conv(x, params["patch"], self.patch, padding="VALID").reshape(
            x.shape[0], -1, self.width
        )
        x = x + params["positions"].astype(BF16)

        def block(x: Any, own: Any) -> Any:
            h = norm(x, own["norm1"], True)
            query, key, value = jnp.moveaxis(
                jnp.einsum("btd,dcnh->btcnh", h, own["in"].astype(BF16)), 2, 0
            )
            h = jax.nn.dot_product_attention(query, key, value)
            x = x + jnp.einsum("btnh,nhd->btd", h, own["leave"].astype(BF16))
            h = norm(x, own["norm2"], True)
            return x + jax.nn.gelu(h @ own["up"].astype(BF16)) @ own["down"].astype(BF16), None

        x, _ = lax.scan(block, x, params["blocks"])
        return x

    def training(self) -> Made:
        given = images(self.layout, self.batch, self.size, self.size, 3)
        return train(classifier(self.body), self.params(), given, self.layout, "adam")


@dataclasses.dataclass(frozen=True)
class UNet:
    """The noise predictor of a diffusion model: residual blocks with group norm and the time's
    embedding, attention at the lowest resolution, paths from the way down to the way up."""

    width: int
    levels: int
    batch: int
    size: int
    channels: int = 4
    layout: Layout = ONE

    def params(self) -> Any:
        array = self.layout.array

        def pair(width: int) -> Any:
            return array((width,)), array((width,))

        def block(entering: int, leaving: int) -> Any:
            return {
                "norm1": pair(entering),
                "conv1": array((3, 3, entering, leaving)),
                "time": array((4 * self.width, leaving)),
                "norm2": pair(leaving),
                "conv2": array((3, 3, leaving, leaving)),
                "skip": array((1, 1, entering, leaving)),
            }

        widths = [self.width * 2**level for level in range(self.levels)]
        low = widths[-1]
        return {
            "time": array((self.width, 4 * self.width)),
            "in": array((3, 3, self.channels, self.width)),
            "down": [block(a, b) for a, b in zip([self.width, *widths], widths, strict=False)],
            "middle": {
                "norm": pair(low),
                "in": array((low, 3, low)),
                "leave": array((low, low)),
                "block": block(low, low),
            },
            "up": [block(2 * b, a) for a, b in zip([self.width, *widths], widths, strict=False)],
            "norm": pair(self.width),
            "out": array((3, 3, self.width, self.channels)),
        }

    def run(self, params: Any, x: Any, time: Any) -> Any:
        half = self.width // 2
        angles = time[:, None] * jnp.exp(-9.2 * jnp.arange(half) / half)
        emb = jax.nn.silu(
            jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1) @ params["time"]
        ).astype(BF16)

        def block(x: Any, own: Any) -> Any:
            h = conv(jax.nn.silu(group_norm(x, own["norm1"], 8)), own["conv1"])
            h = h + (emb @ own["time"].astype(BF16))[:, None, None]
            h = conv(jax.nn.silu(group_norm(h, own["norm2"], 8)), own["conv2"])
            return h + conv(x, own["skip"])

        x = conv(x.astype(BF16), params["in"])
        kept = []
        for own in params["down"]:
            x = block(x, own)
            kept.append(x)
            x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        middle = params["middle"]
        h = group_norm(x, middle["norm"], 8).reshape(x.shape[0], -1, x.shape[-1])
        query, key, value = jnp.moveaxis(
            jnp.einsum("btd,dce->btce", h, middle["in"].astype(BF16)), 2, 0
        )
        shares = jax.nn.softmax(
            jnp.einsum("btd,bsd->bts", query, key).astype(F32) * x.shape[-1] ** -0.5
        )
        h = jnp.einsum("bts,bsd->btd", shares.astype(BF16), value) @ middle["leave"].astype(BF16)
        x = block(x + h.reshape(x.shape), middle["block"])
        for own, across in zip(reversed(params["up"]), reversed(kept), strict=True):
            x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
            x = block(jnp.concatenate([x, across], -1), own)
        return conv(jax.nn.silu(group_norm(x, params["norm"], 8)), params["out"]).astype(F32)

    def _given(self) -> tuple[Any, Any]:
        array = self.layout.array
        shape = (self.batch, self.size, self.size, self.channels)
        return array(shape, "batch . . ."), array((self.batch,), "batch")

    def forward(self) -> Made:
        return Made(self.run, (self.params(), *self._given()), (), self.layout)

    def training(self) -> Made:
        def loss(params: Any, x: Any, time: Any, noise: Any) -> Any:
            share = jnp.cos(time)[:, None, None, None]
            return jnp.mean(
                jnp.square(self.run(params, share * x + (1 - share) * noise, time) - noise)
            )

        x, time = self._given()
        return train(loss, self.params(), (x, time, x), self.layout, "adam")


def convolution(
    shape: tuple[int, ...], kernel: tuple[int, ...], stride: int = 1, gradient: str = ""
) -> Made:
    """One convolution, or its gradient by "input" or "kernel"; what the kernel's features leave
    open are groups."""
    groups = shape[-1] // kernel[-2]
    run = functools.partial(conv, stride=stride, groups=groups)
    given = (ONE.array(shape, "", BF16), ONE.array(kernel, "", BF16))
    if not gradient:
        return Made(run, given)
    out = jax.eval_shape(run, *given)

    def pull(x: Any, kernel: Any, back: Any) -> Any:
        return jax.vjp(run, x, kernel)[1](back)[0 if gradient == "input" else 1]

    return Made(pull, (*given, ONE.array(out.shape, "", BF16)))
