"""Training steps whose results are printed as digests: `python bits.py NUMERICS`, `engine` or
nothing.

With `engine` each step is compiled by Podyard's own transformation; else it is a program that knows
nothing of Podyard.
"""

import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS = 10
chance = np.random.default_rng(0)


def jit(function):
    if "engine" in sys.argv:
        from podyard import engine

        return engine.mxu_jit(function, mode="reference")
    return jax.jit(function)


def digest(tree):
    return hashlib.sha256(
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    ).hexdigest()[:16]


def normal(*shape):
    return jnp.asarray(chance.normal(size=shape) * 0.1, jnp.float32)


def train(loss, params, optimizer):
    def step(params, state):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    run, state = jit(step), optimizer.init(params)
    for _ in range(STEPS):
        params, state, value = run(params, state)
    return digest((params, state, value))


images, labels = normal(32, 28, 28, 1), jnp.asarray(chance.integers(0, 10, 32))
cnn = {"first": normal(3, 3, 1, 8), "second": normal(3, 3, 8, 16), "last": normal(7 * 7 * 16, 10)}


def cnn_loss(precision):
    def loss(params):
        x = images
        for name in ("first", "second"):
            x = jax.lax.conv_general_dilated(
                x,
                params[name],
                (2, 2),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                precision=precision,
            )
            x = jax.nn.relu(x)
        logits = jnp.dot(x.reshape(32, -1), params["last"], precision=precision)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return loss


tokens = normal(4, 16, 64)
weights = [normal(64, 64) for _ in range(4)]


def transformer_loss(weights):
    def layer(x, _):
        q, k, v = (x @ weights[place] for place in range(3))
        attention = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 8.0)
        return x + jnp.einsum("bqk,bkd->bqd", attention, v) @ weights[3], None

    return (jax.lax.scan(jax.checkpoint(layer), tokens, None, length=3)[0] ** 2).mean()


def mixed(x):
    narrow = x.astype(jnp.bfloat16)
    return x @ narrow.astype(jnp.float32) + (narrow @ narrow).astype(jnp.float32)


def vectors(x):
    row, column = x[:1], x[:, 0]
    batched = jnp.einsum("bi,bij->bj", x, x[None] + row[:, :, None] * 0 + jnp.zeros((64, 1, 1)))
    return x @ column, row @ x, column @ column, batched, row.reshape(1, 1, -1) @ x[None]


def algorithms(x):
    presets = ("BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6")
    return [jnp.dot(y, x, precision=preset) for preset in presets for y in (x, x[:1])]


for precision in (None, "high", "highest"):
    print("cnn", precision, train(cnn_loss(precision), cnn, optax.adam(1e-3)))
print("transformer", train(transformer_loss, weights, optax.sgd(0.1)))
print("mixed", digest(jit(mixed)(weights[0])))
print("vectors", digest(jit(vectors)(weights[0])))
print("algorithms", digest(jit(algorithms)(weights[0])))
odd = weights[0].at[0, 0].set(jnp.inf).at[3, 4].set(jnp.nan).at[5, 5].set(3e38)
for precision in ("high", "highest"):
    print(
        "odd",
        precision,
        digest(jit(lambda x, p=precision: jnp.dot(x, weights[1], precision=p))(odd)),
    )
