"""Compiles a training step ahead of time for a topology, as MaxText's train_compile.py does:
arguments are the topology's name and the number of slices."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.topologies import get_topology_desc
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

NAME, SLICES = sys.argv[1], int(sys.argv[2])
DEVICES = get_topology_desc(
    platform="tpu",
    topology_name=NAME,
    chip_config_name="default",
    chips_per_host_bounds=(2, 2, 1),
    num_slices=SLICES,
    wrap=(False, False, False),
).devices
MESH = Mesh(np.array(DEVICES).reshape(-1, 4), ("data", "model"))


def array(shape, *axes):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(MESH, P(*axes)))


def train_step(weights, batch):
    def loss(weights):
        return jnp.mean((jnp.tanh(batch @ weights[0]) @ weights[1]) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda one, other: one - 0.1 * other, weights, gradients), value


weights = [array((8192, 32768), "data", "model"), array((32768, 8192), "model", "data")]
batch = array((8192, 8192), "data")
print(len(DEVICES), DEVICES[0].device_kind, DEVICES[0].platform, {d.process_index for d in DEVICES})
with jax.set_mesh(MESH):
    lowered = jax.jit(train_step, donate_argnums=0).lower(weights, batch)
    compiled = lowered.compile(compiler_options={"xla_tpu_scoped_vmem_limit_kib": "65536"})
memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
print(memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.alias_size_in_bytes)
print(memory.temp_size_in_bytes > 0, cost["flops"], cost["optimal_seconds"])
