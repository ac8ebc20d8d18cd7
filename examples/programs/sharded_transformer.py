"""A transformer whose batch is split over one axis of the devices, and whose weights over the other.

podyard run --tpu v5litepod-8 -- python sharded_transformer.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

layers, width, heads, vocabulary, length, batch = 2, 128, 4, 512, 64, 32
mesh = Mesh(mesh_utils.create_device_mesh((jax.device_count() // 2, 2)), ("data", "model"))


def sharding(*axes):
    return NamedSharding(mesh, P(*axes))


shapes = {
    "embed": ((vocabulary, width), P("model", None)),
    "qkv": ((layers, width, 3, heads, width // heads), P(None, None, None, "model", None)),
    "out": ((layers, heads, width // heads, width), P(None, "model", None, None)),
    "up": ((layers, width, 4 * width), P(None, None, "model")),
    "down": ((layers, 4 * width, width), P(None, "model", None)),
}
keys = jax.random.split(jax.random.key(0), len(shapes))
params = {
    name: jax.device_put(0.02 * jax.random.normal(key, shape), NamedSharding(mesh, spec))
    for key, (name, (shape, spec)) in zip(keys, shapes.items(), strict=True)
}


def norm(x):
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


@jax.checkpoint
def layer(x, weights):
    q, k, v = jnp.einsum("btd,dchk->cbhtk", norm(x), weights["qkv"])
    scores = jnp.einsum("bhqk,bhtk->bhqt", q, k) / np.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    x = x + jnp.einsum("bhqt,bhtk,hkd->bqd", jax.nn.softmax(scores), v, weights["out"])
    x = x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]
    return jax.lax.with_sharding_constraint(x, sharding("data"))


def loss_of(params, tokens):
    x = params["embed"][tokens]
    stack = {name: leaf for name, leaf in params.items() if name != "embed"}
    x, _ = jax.lax.scan(lambda x, weights: (layer(x, weights), None), x, stack)
    logits = norm(x) @ params["embed"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()


optimizer = optax.adamw(1e-3)
state = jax.jit(optimizer.init)(params)


@jax.jit
def train_step(params, state, tokens):
    loss, gradient = jax.value_and_grad(loss_of)(params, tokens)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, loss


tokens = np.arange(batch * length).reshape(batch, length) % vocabulary
tokens = jax.device_put(tokens, sharding("data"))
for _ in range(10):
    params, state, loss = train_step(params, state, tokens)
print(f"{dict(mesh.shape)}: loss {float(loss):.4f}")
