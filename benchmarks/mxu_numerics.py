"""A CIFAR-10 training step with the matrix unit's numerics, compared with plain `jax.jit`,
alternating in one run.

    python -m benchmarks.mxu_numerics [--batch 32 128] [--steps 25]

Also one dot and one convolution of the step with operands as float32, as rounded float32 and as
bfloat16: what decides how `engine.mxu_jit` multiplies. Bound: a step takes at most 1.05 times as
long as plain, with rewrites and without.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from podyard.engine import mxu_jit

RATIO_BOUND = 1.05
LEARNING_RATE, DECAY_FIRST, DECAY_SECOND, EPSILON = 1e-3, 0.9, 0.999, 1e-8
SHAPES = {
    "conv1": (3, 3, 3, 32),
    "conv2": (3, 3, 32, 32),
    "conv3": (3, 3, 32, 64),
    "conv4": (3, 3, 64, 64),
    "dense1": (2304, 512),
    "dense2": (512, 10),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--steps", type=int, default=25)
    arguments = parser.parse_args()
    for batch in arguments.batch:
        products(batch, arguments.steps)
        steps(batch, arguments.steps)


def steps(batch: int, count: int) -> None:
    makers: dict[str, Callable[..., Any]] = {
        "jax.jit": lambda fn: jax.jit(fn, donate_argnums=0),
        "mxu_jit, no rewrites": lambda fn: mxu_jit(fn, rewrites=False, donate_argnums=0),
        "mxu_jit": lambda fn: mxu_jit(fn, donate_argnums=0),
        "mxu_jit, fast": lambda fn: mxu_jit(fn, mode="fast", donate_argnums=0),
    }
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.standard_normal((batch, 32, 32, 3)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 10, batch), jnp.int32)
    compiled = {name: maker(train_step) for name, maker in makers.items()}
    states = {name: initial_state() for name in makers}

    def one_step(name: str) -> Any:
        states[name], loss = compiled[name](states[name], images, labels)
        return loss

    medians = alternate({name: functools.partial(one_step, name) for name in makers}, count)
    plain = medians["jax.jit"]
    for name, median in medians.items():
        verdict = (
            ""
            if name == "jax.jit"
            else "ok"
            if median <= RATIO_BOUND * plain
            else "above the bound"
        )
        print(
            f"step, batch {batch:<4} {name:<22} {median * 1e3:9.2f} ms   "
            f"{median / plain:.3f} {verdict}"
        )


def products(batch: int, count: int) -> None:
    """The largest dot and the largest convolution of the step."""
    rng = np.random.default_rng(1)
    casts: dict[str, Callable[[Any], Any]] = {
        "float32": lambda x: x,
        "rounded float32": lambda x: lax.reduce_precision(x, 8, 7),
        "bfloat16": lambda x: lax.reduce_precision(x, 8, 7).astype(jnp.bfloat16),
    }
    functions: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], tuple[int, ...]]] = {
        "dot": (
            lambda x, w: lax.dot(x, w, preferred_element_type=jnp.float32),
            (batch, 2304),
            SHAPES["dense1"],
        ),
        "conv": (lambda x, w: convolve(x, w, "VALID"), (batch, 32, 32, 32), SHAPES["conv2"]),
    }
    for kind, (function, left_shape, right_shape) in functions.items():
        left, right = (
            jnp.asarray(rng.standard_normal(shape), jnp.float32)
            for shape in (left_shape, right_shape)
        )
        runs: dict[str, Callable[[], Any]] = {}
        for name, cast in casts.items():
            run = jax.jit(lambda x, w, function=function, cast=cast: function(cast(x), cast(w)))
            runs[name] = functools.partial(run, left, right)
        medians = alternate(runs, count)
        for name, median in medians.items():
            print(
                f"{kind}, batch {batch:<4} {name:<22} {median * 1e3:9.2f} ms   "
                f"{median / medians['float32']:.3f}"
            )


def alternate(runs: Mapping[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """Median seconds of each, called in turns after two calls that are not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(count + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            if turn >= 2:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def initial_state() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    params: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        params[name] = jnp.asarray(rng.standard_normal(shape) * scale, jnp.float32)
        params[f"{name}/bias"] = jnp.zeros(shape[-1])
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {
        "step": jnp.zeros((), jnp.int32),
        "params": params,
        "first": zeros,
        "second": jax.tree.map(jnp.copy, zeros),
    }


def train_step(state: dict[str, Any], images: Any, labels: Any) -> tuple[dict[str, Any], Any]:
    """One step of Adam. images [n, 32, 32, 3], labels [n] -> the next state and the mean loss in
    nats."""
    step = state["step"] + 1
    key = jax.random.fold_in(jax.random.key(0), step)
    loss, slope = jax.value_and_grad(mean_loss)(state["params"], images, labels, key)
    first = jax.tree.map(
        lambda m, g: DECAY_FIRST * m + (1 - DECAY_FIRST) * g, state["first"], slope
    )
    second = jax.tree.map(
        lambda v, g: DECAY_SECOND * v + (1 - DECAY_SECOND) * g * g, state["second"], slope
    )
    rate = LEARNING_RATE * jnp.sqrt(1 - DECAY_SECOND**step) / (1 - DECAY_FIRST**step)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPSILON), state["params"], first, second
    )
    return {"step": step, "params": params, "first": first, "second": second}, loss


def mean_loss(params: Mapping[str, Any], images: Any, labels: Any, key: Any) -> Any:
    keys = jax.random.split(key, 3)
    x = jax.nn.relu(convolve(images, params["conv1"], "SAME") + params["conv1/bias"])
    x = jax.nn.relu(convolve(x, params["conv2"], "VALID") + params["conv2/bias"])
    x = dropout(max_pool(x), 0.25, keys[0])
    x = jax.nn.relu(convolve(x, params["conv3"], "SAME") + params["conv3/bias"])
    x = jax.nn.relu(convolve(x, params["conv4"], "VALID") + params["conv4/bias"])
    x = dropout(max_pool(x), 0.25, keys[1])
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ params["dense1"] + params["dense1/bias"])
    logits = dropout(x, 0.5, keys[2]) @ params["dense2"] + params["dense2/bias"]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, 10), axis=-1))


def convolve(x: Any, kernel: Any, padding: str) -> Any:
    return lax.conv_general_dilated(
        x,
        kernel,
        (1, 1),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=jnp.float32,
    )


def max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def dropout(x: Any, rate: float, key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


if __name__ == "__main__":
    main()
