"""A training run that ends for lack of data."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    def loss(weights):
        return jnp.mean((batch @ weights) ** 2)

    return weights - 0.1 * jax.grad(loss)(weights)


batches = iter([np.ones((256, 512), np.float32)] * 4)
weights = jnp.ones((512, 512))
while True:
    weights = train_step(weights, next(batches))
