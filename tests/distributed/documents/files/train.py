"""A program such as readers have: `python train.py [--epochs N]`, on every host by itself."""

import argparse

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--learningRate", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()


@jax.jit
def train_step(weights, inputs, targets):
    def loss(weights):
        return jnp.mean((jnp.tanh(inputs @ weights["in"]) @ weights["out"] - targets) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - arguments.learningRate * g, weights, gradients), value


keys = jax.random.split(jax.random.key(arguments.seed), 3)
weights = {
    "in": jax.random.normal(keys[0], (64, 256)) / 8,
    "out": jax.random.normal(keys[1], (256, 8)) / 16,
}
inputs = jax.random.normal(keys[2], (128, 64))
targets = inputs[:, :8]
for epoch in range(arguments.epochs):
    for _ in range(5):
        weights, value = train_step(weights, inputs, targets)
    print(f"epoch {epoch} loss {value:.4f}", flush=True)
jnp.savez("result.npz", **weights)
