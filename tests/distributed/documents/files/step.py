"""A function of two arrays, and as a program its StableHLO."""

import jax
import jax.numpy as jnp


def step(weights, inputs):
    return jnp.tanh(inputs @ weights.astype(jnp.bfloat16))


if __name__ == "__main__":
    shapes = (
        jax.ShapeDtypeStruct((784, 512), jnp.float32),
        jax.ShapeDtypeStruct((128, 784), jnp.bfloat16),
    )
    print(jax.jit(step).lower(*shapes).as_text())
