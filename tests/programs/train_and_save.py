"""Trains a few steps, with a checkpoint of the state at every second: `python train_and_save.py
FOLDER WIDTH`."""

import sys

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.experimental import v1

folder, width = sys.argv[1], int(sys.argv[2])
manager = ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(save_interval_steps=2))
state = jax.jit(lambda key: {"w": jax.random.normal(key, (width, width))})(jax.random.key(0))
step = jax.jit(
    lambda state: jax.tree.map(lambda w: w - jnp.tanh(w @ w.T) * 1e-3, state), donate_argnums=0
)
for number in range(6):
    state = step(state)
    manager.save(number, args=ocp.args.Composite(state=ocp.args.StandardSave(state)))
manager.wait_until_finished()
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(f"{folder}/last", state)
    checkpointer.save(f"{folder}/small", {"step": jnp.ones(3)})
v1.save_pytree(f"{folder}/tree", state)
v1.save_pytree_async(f"{folder}/later", state).result()
v1.save_pytree(f"{folder}/small_tree", {"step": jnp.ones(3)})
print(f"saved {manager.all_steps()}")
