from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.typing import NDArray

from podyard.engine.numerics import rewrites
from podyard.engine.numerics.transform import mxu_jit

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
POOLINGS = ("reduce_window_max", "select_and_scatter_add")


def normal(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def names(fn: Callable[..., Any], *args: Any) -> list[str]:
    """The primitives of the transformed program, nested ones included."""
    found: list[str] = []

    def walk(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            found.append(eqn.primitive.name)
            for value in eqn.params.values():
                if hasattr(value, "jaxpr") or hasattr(value, "eqns"):
                    walk(getattr(value, "jaxpr", value))

    walk(jax.make_jaxpr(fn)(*args).jaxpr)
    return found


def same_bits(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def max_pool(x: Any, window: tuple[int, ...], strides: Any = None, padding: Any = "VALID") -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides or window, padding)


def with_gradient(window: tuple[int, ...], **options: Any) -> Callable[[Any, Any], Any]:
    """f(x, slope of the result) -> (result, slope of x)."""

    def run(x: Any, slope: Any) -> Any:
        result, pull = jax.vjp(lambda v: max_pool(v, window, **options), x)
        return result, pull(slope)[0]

    return run


def windows_of(values: list[float]) -> NDArray[np.float32]:
    """Every 2x2 window of `values`, side by side: [1, 2, 2 * count, 1]."""
    all_windows = np.array(list(itertools.product(values, repeat=4)), np.float32).reshape(-1, 2, 2)
    return np.concatenate(list(all_windows), axis=1)[None, :, :, None]


@pytest.mark.parametrize("slope", [1.0, -0.0, -2.5, 1e-40, np.inf, np.nan])
def test_gradient_goes_where_xla_sends_it_in_every_tie_and_beside_every_nan(slope: float) -> None:
    x = windows_of([0.0, -0.0, 1.0, np.nan, -np.inf, np.inf])
    slopes = np.full((1, 1, x.shape[2] // 2, 1), slope, np.float32)
    run = with_gradient((1, 2, 2, 1))
    _, plain = mxu_jit(run, rewrites=False)(x, slopes)
    _, rewritten = mxu_jit(run)(x, slopes)
    assert same_bits(rewritten, plain)
    if slope == 1.0:
        assert np.array_equal(
            np.asarray(plain).reshape(2, -1, 2).sum((0, 2)), np.ones(x.shape[2] // 2)
        )
        tie = with_gradient((1, 2, 2, 1))
        first = mxu_jit(tie)(np.ones((1, 2, 2, 1), np.float32), np.ones((1, 1, 1, 1), np.float32))[
            1
        ]
        assert np.ravel(first).tolist() == [1, 0, 0, 0]


def test_maxima_have_the_bits_of_xla_except_the_sign_of_zero_and_a_nan_stays() -> None:
    def run(v: Any) -> Any:
        return max_pool(v, (1, 2, 2, 1))

    for channels in (1, 64):
        x = np.repeat(windows_of([0.0, 1.0, -1.5, -np.inf, np.inf]), channels, axis=3)
        assert same_bits(mxu_jit(run)(x), mxu_jit(run, rewrites=False)(x))
        x[x == 1] = -0.0
        assert np.array_equal(mxu_jit(run)(x), mxu_jit(run, rewrites=False)(x))
    x = windows_of([0.0, 1.0, np.nan, np.inf])
    is_nan = np.isnan(x).reshape(2, -1, 2).any(axis=(0, 2))
    assert np.array_equal(np.isnan(np.ravel(mxu_jit(run)(x))), is_nan)


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((2, 8, 8, 3), (1, 2, 2, 1)),
        ((2, 13, 7, 3), (1, 2, 2, 1)),  # a row and a column are left over
        ((2, 10, 9, 3), (1, 3, 3, 1)),
        ((2, 3, 6, 8), (1, 1, 3, 2)),
        ((12,), (4,)),
    ],
)
def test_pooling_of_every_shape_is_rewritten_with_equal_bits(
    shape: tuple[int, ...], window: tuple[int, ...]
) -> None:
    # Few different numbers, so that most windows have ties.
    x = RNG.integers(-1, 2, shape).astype(np.float32)
    run = with_gradient(window)
    slope = normal(*jax.eval_shape(lambda v: max_pool(v, window), x).shape)
    rewritten, plain = mxu_jit(run), mxu_jit(run, rewrites=False)
    assert all(same_bits(*pair) for pair in zip(rewritten(x, slope), plain(x, slope), strict=True))
    assert not set(POOLINGS) & set(names(rewritten, x, slope))
    assert set(POOLINGS) <= set(names(plain, x, slope))


def test_pooling_under_vmap_and_in_a_loop_is_rewritten() -> None:
    x = RNG.integers(-1, 2, (3, 2, 6, 6, 1)).astype(np.float32)

    def loss(v: Any) -> Any:
        return jnp.sum(jnp.sin(max_pool(v, (1, 2, 2, 1))))

    for run in (jax.vmap(jax.grad(loss)), lambda v: lax.map(jax.grad(loss), v)):
        assert same_bits(mxu_jit(run)(x), mxu_jit(run, rewrites=False)(x))
        assert not set(POOLINGS) & set(names(mxu_jit(run), x))


@pytest.mark.parametrize(
    "options",
    [
        {"window": (1, 3, 3, 1), "strides": (1, 2, 2, 1)},
        {"window": (1, 2, 2, 1), "padding": ((0, 0), (1, 1), (0, 0), (0, 0))},
        {"window": (1, 5, 5, 1)},
        {"window": (1, 1, 1, 1)},
        {"window": (1, 11, 1, 1)},  # fits nowhere
    ],
)
def test_other_pooling_is_left_alone(options: dict[str, Any]) -> None:
    x = normal(2, 10, 10, 3)
    run = with_gradient(**options)
    slope = normal(*jax.eval_shape(lambda v: max_pool(v, **options), x).shape)
    assert set(POOLINGS) <= set(names(mxu_jit(run), x, slope))
    for one, other in zip(mxu_jit(run)(x, slope), jax.jit(run)(x, slope), strict=True):
        assert np.array_equal(one, other)


def test_dilated_pooling_is_left_alone() -> None:
    def run(v: Any) -> Any:
        return lax.reduce_window(v, -jnp.inf, lax.max, (2,), (2,), "VALID", window_dilation=(3,))

    assert "reduce_window_max" in names(mxu_jit(run), normal(12))
    assert np.array_equal(mxu_jit(run)(np.arange(12, dtype=np.float32)), [3, 5, 7, 9, 11])


def convolution(
    numbers: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC"), **options: Any
) -> Callable[[Any, Any], Any]:
    settings = {"window_strides": (1, 1), "padding": "VALID", **options}
    return lambda x, k: lax.conv_general_dilated(x, k, dimension_numbers=numbers, **settings)


@pytest.mark.parametrize("precision", ["default", "high"])
def test_a_convolution_of_full_size_has_equal_bits_in_pieces(precision: Any) -> None:
    x, kernel = normal(32, 32, 32, 32), normal(3, 3, 32, 32)
    run = convolution()
    rewritten, plain = mxu_jit(run, precision), mxu_jit(run, precision, rewrites=False)
    assert names(rewritten, x, kernel).count("conv_general_dilated") == 2 * names(
        plain, x, kernel
    ).count("conv_general_dilated")
    assert same_bits(rewritten(x, kernel), plain(x, kernel))


@pytest.mark.parametrize(
    ("run", "shape", "kernel_shape"),
    [
        (convolution(), (7, 10, 10, 3), (3, 3, 3, 4)),
        (convolution(window_strides=(2, 2)), (12, 13, 12, 3), (3, 2, 3, 4)),
        (convolution(("NCHW", "OIHW", "NCHW")), (7, 3, 10, 10), (4, 3, 3, 3)),
    ],
)
def test_pieces_of_a_batch_are_put_together_in_order(
    run: Any, shape: tuple[int, ...], kernel_shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrites, "_PATCHES_BYTES_MAX", 16_384)
    x, kernel = normal(*shape), normal(*kernel_shape)
    assert names(mxu_jit(run), x, kernel).count("conv_general_dilated") > 1
    assert same_bits(mxu_jit(run)(x, kernel), mxu_jit(run, rewrites=False)(x, kernel))


def test_long_sums_are_cut_only_where_order_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "_PATCHES_BYTES_MAX", 65_536)
    x, kernel = normal(16, 12, 12, 3), normal(3, 3, 3, 4)
    gradient = jax.grad(lambda k: jnp.sum(jnp.sin(convolution()(x, k))))
    plain = mxu_jit(gradient, rewrites=False)
    reference, fast = mxu_jit(gradient), mxu_jit(gradient, mode="fast")
    counts = [names(run, kernel).count("conv_general_dilated") for run in (plain, reference, fast)]
    assert counts[0] == 2 and counts[1] > 2  # the forward pass is cut in both
    assert counts[2] > counts[1]
    assert same_bits(reference(kernel), plain(kernel))
    assert np.allclose(fast(kernel), plain(kernel), rtol=0, atol=1e-5 * np.abs(plain(kernel)).max())


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "SAME"},
        {"rhs_dilation": (2, 2)},
        {"lhs_dilation": (2, 2), "padding": ((0, 0), (0, 0))},
        {"feature_group_count": 2},
        {"batch_group_count": 2},
    ],
)
def test_other_convolutions_stay_whole(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrites, "_PATCHES_BYTES_MAX", 8192)
    x, kernel = normal(6, 10, 10, 4), normal(3, 3, 4 // options.get("feature_group_count", 1), 4)
    run = convolution(**options)
    assert names(mxu_jit(convolution()), x, normal(3, 3, 4, 4)).count("conv_general_dilated") > 1
    assert names(mxu_jit(run), x, kernel).count("conv_general_dilated") == 1
    assert same_bits(mxu_jit(run)(x, kernel), mxu_jit(run, rewrites=False)(x, kernel))


@pytest.mark.slow
def test_a_whole_training_step_has_equal_bits_with_and_without() -> None:
    def loss(params: Any, images: Any) -> Any:
        x = jax.nn.relu(convolution(padding="SAME")(images, params["a"]) + params["a bias"])
        x = jax.nn.relu(convolution()(max_pool(x, (1, 2, 2, 1)), params["b"]))
        x = max_pool(x, (1, 2, 2, 1)).reshape(images.shape[0], -1)
        return -jnp.mean(jax.nn.log_softmax(x @ params["c"])[:, 0])

    def step(params: Any, images: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(params, images)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, slope)

    # 16 images are 20 MB of patches in the second convolution.
    params = {
        "a": normal(3, 3, 3, 32) / 5,
        "a bias": np.zeros(32, np.float32),
        "b": normal(3, 3, 32, 16) / 17,
    }
    params["c"] = normal(15 * 15 * 16, 10) / 60
    images = normal(20, 64, 64, 3)
    plain, rewritten = mxu_jit(step, rewrites=False)(params, images), mxu_jit(step)(params, images)
    assert names(mxu_jit(step), params, images).count("conv_general_dilated") > 5
    assert all(
        same_bits(*pair) for pair in zip(*map(jax.tree.leaves, (plain, rewritten)), strict=True)
    )
