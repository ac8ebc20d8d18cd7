"""Training on several hosts, each with its own part of the data: `multihost_utils`, and checkpoints
without a library.

`python multihost_arrays.py [FOLDER]`
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

if "TPU_WORKER_HOSTNAMES" in os.environ:
    jax.distributed.initialize()
index, hosts = jax.process_index(), jax.process_count()
mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(-1, 2), ("fsdp", "tensor"))
split, whole = NamedSharding(mesh, P(("fsdp", "tensor"))), NamedSharding(mesh, P())
columns = NamedSharding(mesh, P("fsdp", "tensor"))


def digest(tree):
    return hashlib.sha256(
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    ).hexdigest()[:16]


def batch_of(step):
    """Each host reads its own rows only."""
    chance = np.random.default_rng((step, index))
    rows = 4 * jax.local_device_count()
    x, y = (
        chance.normal(size=(rows, 16)).astype(np.float32),
        chance.normal(size=(rows, 8)).astype(np.float32),
    )
    return tuple(jax.make_array_from_process_local_data(split, part) for part in (x, y))


@jax.jit
def train_step(weights, x, y):
    loss, gradient = jax.value_and_grad(
        lambda w: ((jnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2).mean()
    )(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient), loss


def save(folder, step, weights):
    """All hosts gather, the first writes; nobody goes on before it is there."""
    gathered = multihost_utils.process_allgather(weights, tiled=True)
    if index == 0:
        np.savez(folder / "new.npz", step=step, **gathered)
        (folder / "new.npz").replace(folder / "kept.npz")
    multihost_utils.sync_global_devices("saved")
    return gathered


def restore(folder, like):
    """The first host reads, and tells the others."""
    found = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like) | {
        "step": np.int32(0)
    }
    if index == 0:
        with np.load(folder / "kept.npz") as file:
            found = {name: file[name].astype(found[name].dtype) for name in found}
    found = multihost_utils.broadcast_one_to_all(found)
    step = int(found.pop("step"))
    return step, {
        name: jax.make_array_from_callback(v.shape, columns, lambda at, v=v: v[at])
        for name, v in found.items()
    }


seed = multihost_utils.broadcast_one_to_all(np.int32(7 + 10 * index))
keys = jax.random.split(jax.random.key(int(seed)))
weights = jax.jit(
    lambda keys: {
        "in": jax.random.normal(keys[0], (16, 128)) / 4,
        "out": jax.random.normal(keys[1], (128, 8)) / 11,
    },
    out_shardings=columns,
)(keys)
for step in range(8):
    weights, loss = train_step(weights, *batch_of(step))
multihost_utils.assert_equal(float(loss), "the loss is the same on all hosts")
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
folder.mkdir(exist_ok=True)
gathered = save(folder, 8, weights)
start, again = restore(folder, weights)
assert start == 8 and all(again[name].sharding == columns for name in again)
for step in range(start, 12):
    weights, first = train_step(weights, *batch_of(step))
    again, second = train_step(again, *batch_of(step))
    assert float(first) == float(second)

rows = multihost_utils.host_local_array_to_global_array(
    np.full((8, 2), index, np.float32), mesh, P("fsdp")
)
back = multihost_utils.global_array_to_host_local_array(rows, mesh, P("fsdp"))
single = [jax.device_put(np.float32([[device.id]]), device) for device in jax.local_devices()]
ids = jax.make_array_from_single_device_arrays((jax.device_count(), 1), split, single)
print("seed", int(seed), "rows", rows.shape, back.shape, float(np.asarray(back).mean()) == index)
print(
    "ids",
    int(jax.jit(jnp.sum, out_shardings=whole)(ids)),
    multihost_utils.process_allgather(np.int32(index)).tolist(),
)
print(
    "trained",
    hosts,
    jax.device_count(),
    len(jax.local_devices()),
    digest(gathered),
    float(first).hex(),
)
