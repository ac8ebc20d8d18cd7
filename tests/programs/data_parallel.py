"""Data-parallel training, on all devices of all hosts: `python data_parallel.py STEPS
[initialize|ADDRESS:PORT]`."""

import os
import sys

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

if "initialize" in sys.argv:
    jax.distributed.initialize()
elif len(sys.argv) > 2:
    workers = os.environ["TPU_WORKER_HOSTNAMES"].split(",")
    jax.distributed.initialize(
        f"{workers[0]}:{sys.argv[2]}", len(workers), int(os.environ["TPU_WORKER_ID"])
    )

chance = np.random.default_rng(0)
mesh = Mesh(np.array(jax.devices()), ("data",))
whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
batch = 8 * jax.device_count()
x, y = chance.normal(size=(batch, 32)).astype(np.float32), chance.integers(0, 10, batch)
params = {"first": chance.normal(size=(32, 64)) * 0.1, "second": chance.normal(size=(64, 10)) * 0.1}
params = jax.device_put(jax.tree.map(np.float32, params), whole)
optimizer = optax.adam(1e-2)
state = jax.jit(optimizer.init, out_shardings=whole)(params)


def loss_of(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(
        jax.nn.relu(x @ params["first"]) @ params["second"], y
    ).mean()


@jax.jit
def train_step(params, state, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(params, x, y)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, loss


x, y = (jax.make_array_from_callback(a.shape, split, lambda where, a=a: a[where]) for a in (x, y))
for _ in range(int(sys.argv[1])):
    params, state, loss = train_step(params, state, x, y)
first = jax.local_devices()[0]
print(
    jax.process_index(),
    jax.process_count(),
    jax.device_count(),
    jax.local_device_count(),
    first,
    float(loss).hex(),
)
