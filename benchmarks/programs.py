"""What the hook costs a program: the same calls on plain CPU devices and under `podyard run --tpu
v3-8`, by turns.

Ratios are of neighbours in time. On a machine with other work, those of processor seconds say more.

python -m benchmarks.programs [--rounds 5]
python -m benchmarks.programs --tensorflow PYTHON [--rounds 5]    Keras' fit, plain, mirrored and
fused
    [--batch 256]    examples of a step, over all replicas
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

PODYARD = [sys.executable, "-c", "from podyard.main import cli; cli()"]
PLAIN = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "NPROC": "16"}
PROGRAM = """
import json, time, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
def seconds(function, *arguments, calls):
    jax.block_until_ready(function(*arguments))
    walls, worked = [], time.process_time()
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(calls):
            results = function(*arguments)
        jax.block_until_ready(results)
        walls.append((time.perf_counter() - started) / calls)
    return sorted(walls)[2], (time.process_time() - worked) / (5 * calls)
one = jnp.ones(8)
many = [jnp.ones(4) for _ in range(100)]
weights = jax.device_put(jnp.ones((512, 512)), whole)
def step(size):
    x = jax.device_put(jnp.ones((size, 512)), split)
    function = jax.jit(jax.value_and_grad(lambda w: ((jax.nn.relu(x @ w) @ w) ** 2).mean()))
    return seconds(function, weights, calls=4)
print(json.dumps({
    "a call on one device": seconds(jax.jit(lambda x: x + 1), one, calls=2000),
    "a call with 100 arrays": seconds(jax.jit(lambda t: [x + 1 for x in t]), many, calls=200),
    "a step of 512 rows on 8 devices": step(512),
    "a step of 4096 rows on 8 devices": step(4096),
}))
"""

FIT = """
import json, os, sys, time, numpy as np, tensorflow as tf
mode, batch = sys.argv[1], int(sys.argv[2])
if mode == "TPUStrategy":
    strategy = tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver())
elif mode == "MirroredStrategy":
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 8)
    strategy = tf.distribute.MirroredStrategy(
        [f"/cpu:{replica}" for replica in range(8)], cross_device_ops=tf.distribute.ReductionToOneDevice())
else:
    strategy = tf.distribute.get_strategy()
images, labels = np.random.default_rng(0).random((4 * batch, 32, 32, 3), np.float32), np.arange(4 * batch) % 10
with strategy.scope():
    layers = tf.keras.layers
    model = tf.keras.Sequential([
        layers.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), steps_per_execution=4)
model.fit(images, labels, batch_size=batch, verbose=0)
started, worked = time.perf_counter(), time.process_time()
model.fit(images, labels, batch_size=batch, epochs=8, verbose=0)
print(json.dumps({"wall": time.perf_counter() - started, "processor": time.process_time() - worked}))
"""  # noqa: E501


def measure_keras(python: str, rounds: int, batch: int) -> None:
    """32 steps of a global batch, after the first epoch. Ratios are of neighbours in time."""
    fit = [python, "-c", FIT]
    under = [*PODYARD, "run", "--tpu", "v3-8", "--", *fit, "TPUStrategy", str(batch)]
    ways: dict[str, tuple[list[str], dict[str, str]]] = {
        "TensorFlow's own MirroredStrategy": ([*fit, "MirroredStrategy", str(batch)], {}),
        "mirrored": (under, {"PODYARD_TF_REPLICAS": "mirrored"}),
        "fused": (under, {"PODYARD_TF_REPLICAS": "fused"}),
    }
    ratios: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        plain = measure([*fit, "plain", str(batch)], {})
        for mode, (command, changes) in ways.items():
            found = measure(command, changes)
            for name, seconds in found.items():
                ratios.setdefault((mode, name), []).append(seconds / plain[name])
    for (mode, name), values in ratios.items():
        middle, low, high = statistics.median(values), min(values), max(values)
        print(
            f"fit, {mode}, {name} seconds: {middle:.2f}x of plain Keras ({low:.2f} to {high:.2f}, "
            f"{rounds} rounds)"
        )


def measure(command: list[str], changes: dict[str, str]) -> dict[str, Any]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PODYARD_", "JAX_"))
    }
    done = subprocess.run(
        command, env=environ | changes, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def start_seconds(changes: dict[str, str]) -> tuple[float, float]:
    """Of a Python that imports nothing: seconds, and those of the processor."""
    worked, started = _children_seconds(), time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=os.environ | changes, check=True)
    return time.perf_counter() - started, _children_seconds() - worked


def _children_seconds() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def main() -> None:
    from podyard.programs import SITE_HOOK

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tensorflow", metavar="PYTHON", help="an interpreter with TensorFlow")
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    rounds = options.rounds
    if options.tensorflow:
        measure_keras(options.tensorflow, rounds, options.batch)
        return
    under = [
        *PODYARD,
        "run",
        "--tpu",
        "v3-8",
        "--numerics",
        "f32",
        "--",
        sys.executable,
        "-c",
        PROGRAM,
    ]
    plain, hooked = [], []
    for _ in range(rounds):
        plain.append(measure([sys.executable, "-c", PROGRAM], PLAIN))
        hooked.append(measure(under, {}))
    for name in plain[0]:
        for place, kind in enumerate(("seconds", "processor")):
            pairs = [
                (one[name][place], other[name][place])
                for one, other in zip(plain, hooked, strict=True)
            ]
            before, after = (statistics.median(one) for one in zip(*pairs, strict=True))
            ratios = sorted(after / before for before, after in pairs)
            ratio = f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            times = f"{before * 1e6:10.1f} us, {after * 1e6:10.1f} us"
            print(f"{name:34} {kind:9} {times}: {ratio}, {(after - before) * 1e6:+.1f} us")
    hook = {"PYTHONPATH": str(SITE_HOOK), "PODYARD_TPU": "v3-8"}
    starts = [(start_seconds({}), start_seconds(hook)) for _ in range(20)]
    for place, kind in enumerate(("seconds", "processor")):
        before, after = (
            statistics.median(one[place] for one in found) for found in zip(*starts, strict=True)
        )
        times = f"{before * 1e3:10.1f} ms, {after * 1e3:10.1f} ms"
        print(f"{'a Python without JAX':34} {kind:9} {times}: {(after - before) * 1e3:+.1f} ms")


if __name__ == "__main__":
    main()
