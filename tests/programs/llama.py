"""A training step like Llama 2 7B's: FSDP over all devices, AdamW, rematerialized layers in a scan
or one by one.

`python llama.py SEQUENCES_PER_DEVICE [unrolled] [LAYERS WIDTH FEED_FORWARD HEADS]`
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

arguments = [word for word in sys.argv[1:] if word != "unrolled"]
in_scan = "unrolled" not in sys.argv
layers, width, feed_forward, heads = (
    map(int, arguments[1:5]) if len(arguments) > 1 else (32, 4096, 11008, 32)
)
vocabulary, length = 32000, 2048
mesh = Mesh(np.array(jax.devices()), ("fsdp",))


def sharding(*axes):
    return NamedSharding(mesh, P(*axes))


def init(key):
    keys = iter(jax.random.split(key, 9))

    def normal(*shape):
        return jax.random.normal(next(keys), shape, jnp.float32) * 0.02

    squares = {name: normal(layers, width, width) for name in "qkvo"}
    wide = {name: normal(layers, width, feed_forward) for name in ("gate", "up")}
    norms = {name: jnp.ones((layers, width)) for name in ("norm1", "norm2")}
    stack = squares | wide | norms | {"down": normal(layers, feed_forward, width)}
    return {
        "tokens": normal(vocabulary, width),
        "logits": normal(width, vocabulary),
        "norm": jnp.ones(width),
        "layers": stack,
    }


def place(stacked, leaf):
    return sharding(*[None] * stacked, "fsdp", None) if leaf.ndim == 2 + stacked else sharding()


shapes = jax.eval_shape(init, jax.random.key(0))
places = {
    name: jax.tree.map(functools.partial(place, int(name == "layers")), leaf)
    for name, leaf in shapes.items()
}
params = jax.jit(init, out_shardings=places)(jax.random.key(0))
optimizer = optax.adamw(1e-4)
moments = jax.eval_shape(optimizer.init, shapes)
state_places = optax.tree_utils.tree_map_params(
    optimizer, lambda _, at: at, moments, places, transform_non_params=lambda _: sharding()
)
state = jax.jit(optimizer.init, out_shardings=state_places)(params)


def norm(x, weight):
    mean = (x.astype(jnp.float32) ** 2).mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(mean + 1e-6).astype(x.dtype) * weight.astype(x.dtype)


@jax.checkpoint
def layer(x, weights):
    weights = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), weights)
    h = norm(x, weights["norm1"])
    q, k, v = ((h @ weights[name]).reshape(*h.shape[:2], heads, width // heads) for name in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    attention = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", attention, v).reshape(x.shape) @ weights["o"]
    h = norm(x, weights["norm2"])
    x = x + (jax.nn.silu(h @ weights["gate"]) * (h @ weights["up"])) @ weights["down"]
    return jax.lax.with_sharding_constraint(x, sharding("fsdp"))


def loss_of(params, tokens):
    x = jax.lax.with_sharding_constraint(
        params["tokens"].astype(jnp.bfloat16)[tokens], sharding("fsdp")
    )
    if in_scan:
        x, _ = jax.lax.scan(lambda x, weights: (layer(x, weights), None), x, params["layers"])
    else:
        for index in range(layers):
            x = layer(x, jax.tree.map(lambda leaf, i=index: leaf[i], params["layers"]))
    logits = (norm(x, params["norm"]) @ params["logits"].astype(jnp.bfloat16)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, state, tokens):
    loss, gradient = jax.value_and_grad(loss_of)(params, tokens)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, loss


while True:
    batch = np.zeros((int(arguments[0]) * jax.device_count(), length), np.int32)
    params, state, loss = train_step(params, state, jax.device_put(batch, sharding("fsdp")))
    print("loss", float(loss))
