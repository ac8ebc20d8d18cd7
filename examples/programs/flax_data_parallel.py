"""Data-parallel training with flax and optax on all hosts of a slice. Nothing in here knows of Podyard.

podyard run --tpu v3-32 -- python flax_data_parallel.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for features in (32, 64):
            x = nn.relu(nn.Conv(features, (3, 3), strides=(2, 2))(x))
        x = nn.relu(nn.Dense(128)(x.reshape((x.shape[0], -1))))
        return nn.Dense(10)(x)


mesh = Mesh(np.array(jax.devices()), ("data",))
everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
batch = 16 * jax.device_count()


@jax.jit
def make_state():
    net = Net()
    params = net.init(jax.random.key(0), jnp.zeros((1, 28, 28, 1)))["params"]
    return train_state.TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))


@jax.jit
def train_step(state, images, labels):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, gradient = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradient), loss


with jax.set_mesh(mesh):
    state = jax.jit(make_state, out_shardings=everywhere)()
chance = np.random.default_rng(0)
for _ in range(10):
    images = chance.random((batch, 28, 28, 1), np.float32)
    labels = (images.mean((1, 2, 3)) * 20).astype(np.int32) % 10
    images = jax.make_array_from_callback(images.shape, split, lambda where, all=images: all[where])
    labels = jax.make_array_from_callback(labels.shape, split, lambda where, all=labels: all[where])
    state, loss = train_step(state, images, labels)
print(f"host {jax.process_index()} of {jax.process_count()}: {jax.device_count()} devices, loss {float(loss):.4f}")
