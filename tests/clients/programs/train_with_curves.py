"""Trains on all devices until the slice is taken back, and 20 steps more once it is restored.
Checkpoint, curve and model are objects of the job's output."""

import io
import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from tensorboardX import SummaryWriter

BUCKET, _, FOLDER = os.environ["PODYARD_OUTPUT"].removeprefix("gs://").partition("/")
STORAGE = os.environ["STORAGE_EMULATOR_HOST"]


def read(name):
    try:
        with urllib.request.urlopen(
            f"{STORAGE}/storage/v1/b/{BUCKET}/o/{quote(FOLDER + name, '')}?alt=media"
        ) as found:
            return found.read()
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return None


def write(name, data):
    place = (
        f"{STORAGE}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(FOLDER + name, '')}"
    )
    urllib.request.urlopen(urllib.request.Request(place, data=data, method="POST")).close()


def packed(step, weights):
    out = io.BytesIO()
    np.savez(out, step=step, weights=np.asarray(weights))
    return out.getvalue()


@jax.jit
def train_step(weights, x, y):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    return weights - 0.05 * gradient, loss


jax.distributed.initialize()
worker = jax.process_index()
mesh = Mesh(np.array(jax.devices()), ("data",))
chance = np.random.default_rng(0)
x = chance.normal(size=(8 * jax.device_count(), 16)).astype(np.float32)
y = x @ np.arange(16, dtype=np.float32)
x, y = (
    jax.make_array_from_callback(a.shape, NamedSharding(mesh, P("data")), lambda at, a=a: a[at])
    for a in (x, y)
)

saved = read("checkpoints/state.npz")
state = np.load(io.BytesIO(saved)) if saved else {"step": 0, "weights": np.zeros(16, np.float32)}
step, weights = int(state["step"]), jax.device_put(state["weights"], NamedSharding(mesh, P()))
print(
    "worker",
    worker,
    "of",
    jax.process_count(),
    "on",
    jax.device_count(),
    "devices from step",
    step,
    flush=True,
)
last = step + 20 if saved else None
curves = Path("curves", os.environ["PODYARD_ATTEMPT"])
writer = SummaryWriter(str(curves)) if worker == 0 else None
while step != last and not multihost_utils.reached_preemption_sync_point(step):
    weights, loss = train_step(weights, x, y)
    step += 1
    if writer is not None:
        writer.add_scalar("loss", float(loss), step)
        print(json.dumps({"step": step, "loss": float(loss)}), flush=True)
    time.sleep(0.1)
if writer is not None:
    writer.close()
    for path in curves.iterdir():
        write(f"logs/{path.name}", path.read_bytes())
    write("model/weights.npz" if step == last else "checkpoints/state.npz", packed(step, weights))
sys.exit(0 if step == last else 1)
