"""Ten steps of a small network."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train_step(weights, batch):
    def loss(weights):
        return jnp.mean((batch @ weights) ** 2)

    return weights - 0.1 * jax.grad(loss)(weights)


weights = jnp.ones((512, 512))
for _ in range(10):
    weights = train_step(weights, np.ones((256, 512), np.float32))
print("weight", float(weights[0, 0]))
