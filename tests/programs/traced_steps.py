"""Trains on all devices, and traces five steps: the argument is the folder of the trace."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))


@jax.jit
def train_step(weights, batch):
    def loss(weights):
        return jnp.mean((jnp.tanh(batch @ weights) @ weights.T) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


weights = jax.device_put(jnp.ones((512, 1024)) * 0.01, NamedSharding(mesh, P()))
batch = jax.device_put(jnp.ones((512, 512)), NamedSharding(mesh, P("data")))
weights, loss = train_step(weights, batch)
with jax.profiler.trace(sys.argv[1]):
    for number in range(5):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = train_step(weights, batch)
    loss.block_until_ready()
