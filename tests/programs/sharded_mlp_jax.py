"""The step of `sharded_mlp_torch.py` in JAX. It returns the gradients: PyTorch keeps them, too."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTH, ROWS, RATE = 1024, 512, 1e-3

count = jax.device_count()
mesh = Mesh(np.array(jax.devices()).reshape(count, 1), ("fsdp", "model"))


def split(*spec):
    return NamedSharding(mesh, PartitionSpec(*spec))


def new(shape, *spec):
    return jax.device_put(jax.random.normal(jax.random.key(0), shape) * 0.02, split(*spec))


def loss_of(weights, x):
    hidden = jax.nn.gelu(x @ weights["up"].T + weights["up_bias"], approximate=False)
    y = hidden @ weights["down"].T + weights["down_bias"]
    return jnp.square(jax.lax.with_sharding_constraint(y, split("fsdp", None)) - x).mean()


def step(weights, first, second, number, x):
    """AdamW."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, x)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

    def move(w, m, v):
        root = jnp.sqrt(v / (1 - 0.999**number)) + 1e-8
        return w * (1 - 0.01 * RATE) - RATE * m / (1 - 0.9**number) / root

    return jax.tree.map(move, weights, first, second), first, second, loss, gradients


weights = {
    "up": new((4 * WIDTH, WIDTH), "fsdp", None),
    "up_bias": new((4 * WIDTH,), "fsdp"),
    "down": new((WIDTH, 4 * WIDTH), None, "fsdp"),
    "down_bias": new((WIDTH,), "fsdp"),
}
first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
update = jax.jit(step, donate_argnums=(0, 1, 2))
for number in range(1, 5):
    x = jax.device_put(jax.random.normal(jax.random.key(1), (ROWS, WIDTH)), split("fsdp", None))
    weights, first, second, loss, _ = update(weights, first, second, float(number), x)
