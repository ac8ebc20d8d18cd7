"""TensorFlow programs under TPUStrategy, started as a person would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.stack import PODYARD

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "programs"


def _run(kind: str, *command: str, **changes: str) -> str:
    python = ROOT / ".venv-clients" / "tf" / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    done = subprocess.run(
        [*PODYARD, "run", "--tpu", kind, "--", str(python), *command],
        env=environ | changes, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("data", ["fashion", "cifar10"])
def test_keras_fits_on_eight_replicas(data: str) -> None:
    lines = _run("v3-8", str(EXAMPLES / "tpu_strategy_cnn.py"), data).splitlines()
    assert lines[0] == "8 devices, 8 replicas"
    assert lines[-1] == "predictions (16, 10)"


def test_a_custom_loop_has_the_same_losses_mirrored_and_fused() -> None:
    program = str(EXAMPLES / "tpu_strategy_loop.py")
    mirrored = _run("v3-8", program).split()
    fused = _run("v3-8", program, PODYARD_TF_REPLICAS="fused").split()
    assert mirrored[:3] == fused[:3] == ["8", "replicas,", "loss"]
    for one, other in ((mirrored[3], fused[3]), (mirrored[5], fused[5])):
        assert float(one) == pytest.approx(float(other), abs=2e-6)


def test_a_pod_is_one_program() -> None:
    assert _run("v3-32", str(EXAMPLES / "tpu_strategy_loop.py")).startswith("32 replicas, loss ")


def test_what_the_documents_of_tpus_say() -> None:
    code = """
import os, tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("grpc://10.1.2.3:8470")
print(resolver.master(), resolver.cluster_spec().as_dict()["worker"][0].rpartition(":")[2], resolver.num_accelerators())
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
print(topology.mesh_shape, topology.num_tasks, topology.num_tpus_per_task)
strategy = tf.distribute.TPUStrategy(resolver)
print(len(tf.config.list_physical_devices("TPU")), len(tf.config.list_logical_devices("CPU")))
print(strategy.experimental_local_results(strategy.run(
    lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0))))[0].numpy())
with tf.device("/TPU:3"):
    print(tf.ones(2).device[-5:])
"""
    assert _run("v3-8", "-c", code).splitlines() == [
        "grpc://10.1.2.3:8470 8470 {'TPU': 8}", "[2 2 1 2] 1 8", "8 1", "8.0", "CPU:4",
    ]  # fmt: skip
