"""Small programs drawn by a seed: what people write, in random shapes and orders."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Shape = jax.ShapeDtypeStruct
F32, BF16, I32 = jnp.float32, jnp.bfloat16, jnp.int32
FLOATS = (F32, F32, BF16)


@dataclasses.dataclass(frozen=True)
class DrawnProgram:
    """A function of arrays with these shapes; `turns` of its loop, where it has one that can have
    any number."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def drawn(seed: int) -> DrawnProgram:
    draw = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    return dataclasses.replace(family(draw), name=f"{family.__name__.strip('_')} {seed}")


def _size(draw: random.Random, least: int = 8, most: int = 1024) -> int:
    return draw.choice(
        [
            size
            for size in (3, 8, 16, 40, 64, 100, 128, 256, 384, 512, 1024)
            if least <= size <= most
        ]
    )


_POINTWISE: tuple[Callable[[Any], Any], ...] = (
    jnp.exp, jnp.tanh, jax.nn.relu, jax.nn.gelu, jax.nn.silu, jax.nn.softplus, jnp.abs,
    lambda x: x * 2 + 1,
    lambda x: x**3, lambda x: x**-2, jnp.sqrt, jnp.log1p, lambda x: jnp.where(x > 0, x, -x),
    jax.nn.sigmoid,
    lambda x: jnp.clip(x, -1, 1), lambda x: x.astype(BF16).astype(x.dtype), jnp.sin, jnp.square,
    jnp.exp2, jnp.sign,
    jnp.floor, lambda x: jnp.maximum(x, 0.5), lax.rsqrt, lambda x: x / 3, jnp.expm1, jnp.cbrt,
    lax.erf,
    lambda x: x**2.5,
    jnp.log2, lambda x: jnp.power(2.0, x), jnp.round, lambda x: jnp.mod(x, 2), jnp.arctan, jnp.sinh,
    jax.nn.leaky_relu,
)  # fmt: skip


def _chain(draw: random.Random, steps: int) -> Callable[[Any], Any]:
    chosen = [draw.choice(_POINTWISE) for _ in range(steps)]

    def function(x: Any) -> Any:
        for one in chosen:
            x = one(x)
        return x

    return function


def _elementwise(draw: random.Random) -> DrawnProgram:
    shape = tuple(_size(draw) for _ in range(draw.choice((1, 2, 3))))
    chain, dtype = _chain(draw, draw.randint(1, 5)), draw.choice(FLOATS)
    return DrawnProgram(
        "", lambda x, y: (chain(x) + y, x * y), (Shape(shape, dtype), Shape(shape, dtype))
    )


def _product(draw: random.Random) -> DrawnProgram:
    m, k, n, b = (_size(draw) for _ in range(4))
    spec, shapes = draw.choice([
        ("mk,kn->mn", ((m, k), (k, n))), ("bmk,bkn->bmn", ((3, m, k), (3, k, n))),
        ("mk,nk->mn", ((m, k), (n, k))),
        ("bhqd,bhkd->bhqk", ((2, 4, m, 64), (2, 4, n, 64))), ("km,kn->nm", ((k, m), (k, n))),
        ("bsd,dhe->bshe", ((4, m, k), (k, 8, 64))), ("bi,i->b", ((b, k), (k,))),
    ])  # fmt: skip
    dtype, after = draw.choice(FLOATS), _chain(draw, draw.randint(0, 2))
    arrays = tuple(Shape(shape, dtype) for shape in shapes)
    return DrawnProgram("", lambda x, y: after(jnp.einsum(spec, x, y)), arrays)


def _reduction(draw: random.Random) -> DrawnProgram:
    shape = tuple(_size(draw, 3, 512) for _ in range(draw.choice((2, 3))))
    axis = draw.choice((None, 0, -1))
    how = draw.choice(
        (jnp.sum, jnp.max, jnp.mean, jnp.var, jnp.argmax, jnp.prod, jax.nn.logsumexp, jnp.any)
    )
    before = _chain(draw, 1)
    return DrawnProgram(
        "", lambda x: how(before(x), axis=axis), (Shape(shape, draw.choice(FLOATS)),)
    )


def _normalised(draw: random.Random) -> DrawnProgram:
    rows, width = _size(draw), _size(draw, 64)
    how = draw.choice((jax.nn.softmax, jax.nn.log_softmax,
        lambda x: x * lax.rsqrt((x * x).mean(-1, keepdims=True)),
                       lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1,
                           keepdims=True) + 1e-5)))  # fmt: skip
    if draw.random() < 0.5:
        return DrawnProgram(
            "", lambda x, w: how(x) @ w, (Shape((rows, width), F32), Shape((width, 128), F32))
        )
    return DrawnProgram("", jax.grad(lambda x: (how(x) ** 2).sum()), (Shape((rows, width), F32),))


def _network(draw: random.Random) -> DrawnProgram:
    batch, width, out = _size(draw), _size(draw, 64, 512), draw.choice((10, 128))
    act = draw.choice((jax.nn.relu, jnp.tanh, jax.nn.gelu))

    def loss(weights: Any, x: Any, labels: Any) -> Any:
        hidden = act(x @ weights[0] + weights[1])
        logits = jax.nn.log_softmax(hidden @ weights[2])
        return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()

    def step(weights: Any, x: Any, labels: Any) -> Any:
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x, labels))

    weights = (Shape((width, width), F32), Shape((width,), F32), Shape((width, out), F32))
    return DrawnProgram(
        "",
        step,
        (weights, Shape((batch, width), F32), Shape((batch,), I32)),
        draw.choice(((), (0,))),
    )


def _convolution(draw: random.Random) -> DrawnProgram:
    rank = draw.choice((1, 2, 2, 2, 3))
    side = {1: 64, 2: 16, 3: 8}[rank]
    features, out, batch = draw.choice((3, 16, 64)), draw.choice((16, 64)), draw.choice((1, 8, 32))
    groups = draw.choice((1, 1, 1, features if out % features == 0 else 1))
    window, strides = (draw.choice((1, 3)),) * rank, (draw.choice((1, 1, 2)),) * rank
    spatial = "DHW"[-rank:]
    numbers = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, draw_padding, dimension_numbers=numbers, feature_group_count=groups
        )

    draw_padding = draw.choice(("SAME", "VALID"))
    shapes = (
        Shape((batch, *(side,) * rank, features), F32),
        Shape((*window, features // groups, out), F32),
    )
    if draw.random() < 0.4:
        return DrawnProgram(
            "", jax.grad(lambda x, w: (convolve(x, w) ** 2).sum(), argnums=(0, 1)), shapes
        )
    return DrawnProgram("", lambda x, w: jax.nn.relu(convolve(x, w)), shapes)


def _pooling(draw: random.Random) -> DrawnProgram:
    shape = (draw.choice((2, 8)), 32, 32, draw.choice((16, 128)))
    how, start = draw.choice(((lax.max, -jnp.inf), (lax.add, 0.0)))
    padding = draw.choice(("SAME", "VALID"))

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, start, how, (1, 2, 2, 1), (1, 2, 2, 1), padding)

    function = jax.grad(lambda x: (pool(x) ** 2).sum()) if draw.random() < 0.5 else pool
    return DrawnProgram("", function, (Shape(shape, F32),))


def _scan(draw: random.Random) -> DrawnProgram:
    turns, width, batch = draw.choice((7, 32, 100)), _size(draw, 64, 256), _size(draw, 8, 128)
    reverse, unroll = draw.random() < 0.3, draw.choice((1, 1, 1, 2, 4))
    act, gives = _chain(draw, 1), draw.choice((True, False))

    def run(w: Any, h: Any, xs: Any) -> Any:
        def turn(h: Any, x: Any) -> tuple[Any, Any]:
            h = act(h @ w + x)
            return h, (h.sum(-1) if gives else None)

        return lax.scan(turn, h, xs, reverse=reverse, unroll=unroll)

    shapes = (
        Shape((width, width), F32),
        Shape((batch, width), F32),
        Shape((turns, batch, width), F32),
    )
    if draw.random() < 0.3:
        return DrawnProgram("", jax.grad(lambda w, h, xs: run(w, h, xs)[0].sum()), shapes)
    return DrawnProgram("", run, shapes)


def _layers(draw: random.Random) -> DrawnProgram:
    layers, width, batch = draw.choice((4, 12)), _size(draw, 128, 512), _size(draw, 64, 256)
    dtype = draw.choice(FLOATS)
    keep: Any = jax.checkpoint if draw.random() < 0.5 else (lambda one: one)

    def loss(ws: Any, x: Any) -> Any:
        block = keep(lambda x, w: (x + jax.nn.relu(x @ w), None))
        return (lax.scan(block, x, ws)[0] ** 2).mean()

    def step(ws: Any, x: Any) -> Any:
        return ws - 0.1 * jax.grad(loss)(ws, x)

    shapes = Shape((layers, width, width), dtype), Shape((batch, width), dtype)
    return DrawnProgram("", step, shapes, draw.choice(((), (0,))))


def _lookup(draw: random.Random) -> DrawnProgram:
    vocabulary, width, count = (
        draw.choice((1000, 32000)),
        _size(draw, 64, 512),
        draw.choice((1, 8, 300, 2048)),
    )
    table, indices = Shape((vocabulary, width), draw.choice(FLOATS)), Shape((count,), I32)
    mode = draw.choice((None, "clip", "fill", "promise_in_bounds"))
    after = _chain(draw, 1)
    choice = draw.random()
    if choice < 0.4:
        return DrawnProgram("", lambda t, i: after(t.at[i].get(mode=mode)), (table, indices))
    if choice < 0.7:
        return DrawnProgram(
            "", jax.grad(lambda t, i: (t[i] ** 2).sum().astype(F32)), (table, indices)
        )
    rows = Shape((64, width), F32), Shape((64, 4), I32)
    return DrawnProgram("", lambda x, i: jnp.take_along_axis(x, i, axis=1), rows)


def _scatter(draw: random.Random) -> DrawnProgram:
    rows, width, count = draw.choice((512, 4096)), _size(draw, 64, 512), draw.choice((1, 16, 500))
    how = draw.choice(("set", "add", "max", "multiply"))

    def function(x: Any, i: Any, u: Any) -> Any:
        return getattr(x.at[i], how)(u)

    shapes = Shape((rows, width), F32), Shape((count,), I32), Shape((count, width), F32)
    return DrawnProgram("", function, shapes, draw.choice(((), (0,))))


def _slices(draw: random.Random) -> DrawnProgram:
    shape = (draw.choice((4, 32)), _size(draw, 64), _size(draw, 64))
    part, act = (1, *shape[1:]), _chain(draw, 1)

    def function(x: Any, u: Any, i: Any) -> Any:
        row = lax.dynamic_slice(x, (i, 0, 0), part)
        if choice < 0.5:
            return lax.dynamic_update_slice(x, act(row + u), (i, 0, 0))
        return x[i] * 2, x.at[i].set(u[0]), act(row)[:, ::2], x[:, 1:-1], jnp.flip(u, 1)

    choice = draw.random()
    return DrawnProgram(
        "", function, (Shape(shape, F32), Shape(part, F32), Shape((), I32)), draw.choice(((), (0,)))
    )


def _sorting(draw: random.Random) -> DrawnProgram:
    shape = (_size(draw, 8, 128), _size(draw, 64, 1024))
    how = draw.choice((
        jnp.sort, jnp.argsort, lambda x: lax.top_k(x, 5), lambda x: jnp.sort(x, axis=0), jnp.median,
        lambda x: lax.sort_key_val(x, x * 2), lambda x: jnp.unique(x, size=8),
        lambda x: lax.approx_max_k(x, 4),
        lambda x: jnp.searchsorted(x[0], x[1]), lambda x: jnp.percentile(x, 90, axis=-1),
    ))  # fmt: skip
    return DrawnProgram("", how, (Shape(shape, F32),))


def _running(draw: random.Random) -> DrawnProgram:
    shape = (_size(draw, 8, 256), _size(draw, 64, 512))
    how = draw.choice((jnp.cumsum, jnp.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp))
    axis, before = draw.choice((0, 1)), _chain(draw, 1)
    if draw.random() < 0.3:
        combine: Any = draw.choice((jnp.add, jnp.maximum))
        return DrawnProgram(
            "", lambda x: lax.associative_scan(combine, before(x), axis=axis), (Shape(shape, F32),)
        )
    return DrawnProgram("", lambda x: how(before(x), axis=axis), (Shape(shape, F32),))


def _branches(draw: random.Random) -> DrawnProgram:
    size = _size(draw, 64, 512)
    acts = [_chain(draw, 2) for _ in range(3)]
    if draw.random() < 0.5:
        return DrawnProgram(
            "", lambda x, w, i: lax.switch(i, [acts[0], acts[1], lambda x: acts[2](x @ w)], x),
            (Shape((size, size), F32), Shape((size, size), F32), Shape((), I32)),
        )  # fmt: skip
    return DrawnProgram(
        "", lambda x,
        w: lax.cond(x[0, 0] > 0, lambda x, w: x @ w, lambda x, w: acts[0](x), x, w).sum(),
        (Shape((size, size), F32), Shape((size, size), F32)),
    )  # fmt: skip


def _loop(draw: random.Random) -> DrawnProgram:
    size, turns, act = _size(draw, 64, 512), draw.randint(2, 40), _chain(draw, 1)
    choice = draw.random()
    if choice < 0.4:
        function: Callable[..., Any] = lambda x, w: lax.fori_loop(  # noqa: E731
            0, turns, lambda i, x: act(x @ w), x
        )
    elif choice < 0.7:
        function = lambda x, w: lax.fori_loop(  # noqa: E731
            0, size, lambda i, x: x.at[i].set(act(x[i] + w[i])), x
        )
    else:
        function = lambda x, w: lax.map(lambda row: act(row @ w), x)  # noqa: E731
    return DrawnProgram(
        "", function, (Shape((size, size), F32), Shape((size, size), F32)), draw.choice(((), (0,)))
    )


def _moving(draw: random.Random) -> DrawnProgram:
    a, b = _size(draw, 8, 256), _size(draw, 64, 512)
    how = draw.choice((
        lambda x: jnp.pad(x, ((1, 2), (0, 3))), lambda x: jnp.concatenate([x, x * 2], 1),
        lambda x: x.T,
        lambda x: x.reshape(-1), lambda x: jnp.split(x, 4, axis=1), lambda x: jnp.stack([x, x + 1]),
        lambda x: jnp.tile(x, (2, 1)), lambda x: jnp.repeat(x, 3, axis=0),
        lambda x: jnp.roll(x, 5, axis=1),
        lambda x: lax.split(x, (8, b - 8), axis=1), lambda x: jnp.unstack(x[:3]),
        lambda x: jnp.broadcast_to(x, (4, a, b)),
        lambda x: jnp.tril(x), lambda x: jax.nn.one_hot(x[:, 0].astype(I32), 100),
        lambda x: jnp.einsum("ab->ba", x) + 1,
        lambda x: jnp.swapaxes(x.reshape(a, 4, b // 4), 0, 1), lambda x: jnp.meshgrid(x[0], x[1]),
        jnp.diag,
    ))  # fmt: skip
    return DrawnProgram("", how, (Shape((a, b), draw.choice(FLOATS)),))


def _random(draw: random.Random) -> DrawnProgram:
    a, b = _size(draw, 8, 256), _size(draw, 64, 512)
    how = draw.choice((
        lambda k, x: x * jax.random.bernoulli(k, 0.9, x.shape), lambda k,
        x: x + jax.random.normal(k, x.shape),
        lambda k, x: x * jax.random.uniform(k, x.shape), lambda k, x: jax.random.categorical(k, x),
        lambda k, x: x[jax.random.permutation(k, a)], lambda k, x: jax.random.split(k, 3),
        lambda k, x: jax.random.truncated_normal(k, -1, 1, x.shape), lambda k,
        x: jax.random.randint(k, x.shape, 0, 9),
    ))  # fmt: skip
    key = jax.eval_shape(lambda: jax.random.key(0))
    return DrawnProgram("", how, (key, Shape((a, b), F32)))


def _attention(draw: random.Random) -> DrawnProgram:
    batch, heads, length, width = draw.choice((1, 4)), draw.choice((4, 8)), _size(draw, 64, 512), 64

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)

    one = Shape((batch, heads, length, width), draw.choice(FLOATS))
    if draw.random() < 0.4:
        return DrawnProgram(
            "", jax.grad(lambda q, k, v: attend(q, k, v).sum().astype(F32), (0, 1, 2)), (one,) * 3
        )
    return DrawnProgram("", attend, (one,) * 3)


def _cache(draw: random.Random) -> DrawnProgram:
    batch, heads, length = draw.choice((1, 8)), draw.choice((2, 8)), draw.choice((512, 2048))

    def decode(cache: Any, q: Any, k: Any, place: Any) -> Any:
        cache = lax.dynamic_update_slice(cache, k, (0, place, 0, 0))
        scores = jnp.einsum("bhd,blhd->bhl", q, cache)
        scores = jnp.where(jnp.arange(length) <= place, scores, -1e30)
        return cache, jnp.einsum("bhl,blhd->bhd", jax.nn.softmax(scores), cache)

    shapes = (
        Shape((batch, length, heads, 128), BF16), Shape((batch, heads, 128), BF16),
        Shape((batch, 1, heads, 128), BF16),
        Shape((), I32),
    )  # fmt: skip
    return DrawnProgram("", decode, shapes, draw.choice(((), (0,))))


def _algebra(draw: random.Random) -> DrawnProgram:
    size = _size(draw, 8, 128)
    how = draw.choice((
        jnp.linalg.cholesky, lambda x: jax.scipy.linalg.solve_triangular(x, x),
        lambda x: jnp.linalg.qr(x)[1],
        jnp.linalg.inv, lambda x: jnp.fft.fft(x).real, jnp.linalg.det,
        lambda x: jnp.linalg.matrix_power(x, 5),
        lambda x: jax.scipy.special.gammaln(x), lambda x: jax.scipy.special.digamma(x),
        jnp.linalg.norm,
    ))  # fmt: skip
    return DrawnProgram("", how, (Shape((size, size), F32),))


FAMILIES: tuple[Callable[[random.Random], DrawnProgram], ...] = (
    _elementwise, _product, _reduction, _normalised, _network, _convolution, _pooling, _scan,
    _layers, _lookup,
    _scatter,
    _slices, _sorting, _running, _branches, _loop, _moving, _random, _attention, _cache, _algebra,
)  # fmt: skip
