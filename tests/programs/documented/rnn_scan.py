"""A recurrent network over `jax.lax.scan` on a mesh of two axes: donated buffers, a custom
gradient, prints inside."""

import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(mesh_utils.create_device_mesh((jax.device_count() // 2, 2)), ("data", "model"))
BATCH, LENGTH, SYMBOLS, WIDTH = 4 * jax.device_count(), 24, 29, 64
SPECS = {
    "embed": P(None, "model"),
    "input": P(None, "model"),
    "hidden": P(None, "model"),
    "out": P("model", None),
}
SHARDINGS = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}


def digest(tree):
    return hashlib.sha256(
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    ).hexdigest()[:16]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def clip_gradient(limit, x):
    return x


clip_gradient.defvjp(lambda limit, x: (x, None), lambda limit, _, g: (jnp.clip(g, -limit, limit),))


@jax.custom_jvp
def softplus(x):
    return jnp.log1p(jnp.exp(-jnp.abs(x))) + jnp.maximum(x, 0)


softplus.defjvp(
    lambda primals, tangents: (softplus(*primals), jax.nn.sigmoid(primals[0]) * tangents[0])
)


@functools.partial(jax.jit, out_shardings=SHARDINGS)
def init(key):
    shapes = {"embed": (SYMBOLS, WIDTH), "input": (WIDTH, 2 * WIDTH), "hidden": (WIDTH, 2 * WIDTH)}
    shapes["out"] = (WIDTH, SYMBOLS)
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(k, shape) * shape[0] ** -0.5
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def loss_of(params, tokens):
    @jax.checkpoint
    def cell(state, symbol):
        gates = params["embed"][symbol] @ params["input"] + state @ params["hidden"]
        update, candidate = jnp.split(gates, 2, axis=-1)
        update = jax.nn.sigmoid(update)
        state = clip_gradient(0.01, (1 - update) * state + update * jnp.tanh(candidate))
        return state, state

    first = jax.lax.with_sharding_constraint(
        jnp.zeros((tokens.shape[0], WIDTH)), NamedSharding(mesh, P("data"))
    )
    _, states = jax.lax.scan(cell, first, tokens[:, :-1].T, unroll=2)
    logits = softplus(states @ params["out"])
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:].T[..., None], -1)
    return -chosen.mean()


@functools.partial(jax.jit, donate_argnames=("params", "momentum"))
def train_step(params, momentum, tokens, number):
    loss, gradient = jax.value_and_grad(loss_of)(params, tokens)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    rate = jax.lax.cond(
        number < 3, lambda n: 0.1 * (n + 1), lambda n: 0.5 / jnp.sqrt(n + 1.0), number
    )
    jax.lax.cond(
        number % 5 == 0,
        lambda: jax.debug.print("step {n}: tokens {t}", n=number, t=tokens.sum()),
        lambda: None,
    )
    return jax.tree.map(lambda p, m: p - rate * m, params, momentum), momentum, loss


@functools.partial(jax.jit, static_argnames="length")
def generate(params, key, length):
    """Writes on until the symbol 0, at most `length` symbols."""

    def goes_on(carry):
        number, symbol, *_ = carry
        return (number < length) & ((symbol != 0) | (number == 0))

    def body(carry):
        number, symbol, state, key, written = carry
        key, now = jax.random.split(key)
        gates = params["embed"][symbol] @ params["input"] + state @ params["hidden"]
        update, candidate = jnp.split(gates, 2, axis=-1)
        state = state + jax.nn.sigmoid(update) * (jnp.tanh(candidate) - state)
        symbol = jax.random.categorical(now, state @ params["out"])
        return number + 1, symbol, state, key, written.at[number].set(symbol)

    start = (0, jnp.zeros((), jnp.int32), jnp.zeros(WIDTH), key, jnp.full(length, -1))
    number, *_, written = jax.lax.while_loop(goes_on, body, start)
    return number, written


tokens = np.random.default_rng(0).integers(1, SYMBOLS, (BATCH, LENGTH))
tokens = jax.make_array_from_callback(
    tokens.shape, NamedSharding(mesh, P("data")), lambda where: tokens[where]
)
params = init(jax.random.key(0))
momentum = jax.tree.map(jnp.zeros_like, params)
losses = []
for number in range(12):
    before = params
    params, momentum, loss = train_step(params, momentum, tokens, number)
    losses.append(float(loss))
jax.effects_barrier()
assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before)), "donated buffers are gone"
assert losses[-1] < losses[0], losses
params = jax.tree.map(
    lambda x: jax.device_put(x, NamedSharding(mesh, P())).addressable_data(0), params
)
number, written = generate(params, jax.random.key(1), 40)
sums = jax.jit(lambda x: jax.lax.associative_scan(jnp.add, x))(params["out"])
print("written", int(number), digest(written))
print("trained", jax.device_count(), digest((params, sums)), digest(np.float32(losses)))
