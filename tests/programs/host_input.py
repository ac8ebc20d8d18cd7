"""A step on eight devices; the batch is on them from the start (`fixed`), or new at each step
(`put`, `numpy`)."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
ROWS, COLUMNS = NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "x"))


def step(w, x):
    return w + 1e-6 * (x.T @ jnp.tanh(x @ w))


def batch(number):
    return np.full((65536, 64), number, np.float32)


def main(way):
    train = jax.jit(step, in_shardings=(COLUMNS, ROWS), out_shardings=COLUMNS)
    w = jax.device_put(np.ones((64, 256), np.float32), COLUMNS)
    fixed = jax.device_put(batch(1), ROWS)
    for number in range(4):
        x = {"put": jax.device_put(batch(number), ROWS), "numpy": batch(number)}.get(way, fixed)
        w = train(w, x)


if __name__ == "__main__":
    main(sys.argv[1])
