"""Writes sharded arrays with orbax, and reads them again: `python checkpoints.py FOLDER`."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
tree = {
    "split": jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("data"))),
    "whole": jax.device_put(jnp.ones(3), NamedSharding(mesh, P())),
}
checkpointer = ocp.StandardCheckpointer()
checkpointer.save(sys.argv[1], tree)
checkpointer.wait_until_finished()
found = checkpointer.restore(sys.argv[1], tree)
same = jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), tree, found))
print(f"restored {same}, split {found['split'].sharding == tree['split'].sharding}")
