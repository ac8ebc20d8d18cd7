"""TensorFlow programs under TPUStrategy, started as a person would."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podyard.programs import SITE_HOOK
from tests.stack import PODYARD

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "programs"
PROGRAMS = ROOT / "tests" / "programs"


PYTHON = str(ROOT / ".venv-clients" / "tf" / "bin" / "python")


def _start(
    options: Sequence[str], *command: str, kind: str = "v3-8", code: int = 0, **changes: str
) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    done = subprocess.run(
        [*PODYARD, "run", "--tpu", kind, *options, "--", PYTHON, *command],
        env=environ | changes, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def _run(kind: str, *command: str, **changes: str) -> str:
    return _start((), *command, kind=kind, **changes).stdout


def _hooked(*command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """With devices, and without an estimate."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    environ |= {"PYTHONPATH": str(SITE_HOOK), "PODYARD_TPU": "v3-8"}
    return subprocess.run([PYTHON, *command], env=environ | changes, capture_output=True, text=True, timeout=300)


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
print(strategy.experimental_local_results(strategy.run(tf.function(
    lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))))[0].numpy())
with tf.device("/TPU:3"):
    print(tf.ones(2).device[-5:])
"""
    assert _run("v3-8", "-c", code).splitlines() == [
        "grpc://10.1.2.3:8470 8470 {'TPU': 8}", "[2 2 1 2] 1 8", "8 1", "8.0", "CPU:4",
    ]  # fmt: skip


def _modules(report: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """By name and devices; of several with one name, the one that ran most."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for module in json.loads(report.read_text())["modules"]:
        key = (module["name"], module["devices"])
        if key not in found or module["runs"] > found[key]["runs"]:
            found[key] = module
    return found


@pytest.mark.parametrize("replicas", ["mirrored", "fused"])
def test_what_the_steps_of_keras_take_is_told(replicas: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = _start(
        ["--batch", "128", "--report", str(report)], str(EXAMPLES / "tpu_strategy_cnn.py"), PODYARD_TF_REPLICAS=replicas
    )
    modules = _modules(report)
    train, predict = modules["train_step", 8], modules["predict_step", 8]
    assert (train["runs"], predict["runs"], len(modules)) == (32, 1, 2)
    # Three times the flops of the forward pass, of which the first layer needs two; 16 images a replica.
    forward = [32 * 32 * 32 * 27, 16 * 16 * 64 * 9 * 32, 8 * 8 * 64 * 128, 128 * 10]
    assert train["flopsPerDevice"] == pytest.approx(2 * 16 * (3 * sum(forward) - forward[0]), rel=0.05)
    assert predict["flopsPerDevice"] == pytest.approx(2 * 2 * sum(forward), rel=0.05)
    assert train["fits"] and train["error"] == "" and 1e-4 < train["deviceSecondsPerRun"] < 2e-3
    assert " examples per second, 1,000 steps $" in done.stderr + done.stdout


@pytest.mark.parametrize("replicas", ["mirrored", "fused"])
def test_runs_are_counted_wherever_a_step_runs(replicas: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = str(PROGRAMS / "tensorflow_steps.py")
    done = _start(["--report", str(report)], program, PODYARD_TF_REPLICAS=replicas)
    runs = {name: module["runs"] for name, module in _modules(report).items()}
    assert runs == {("step", 8): 6, ("alone", 1): 2, ("spell", 8): 4, ("double", 8): 3}
    told = "1 of 5 modules, 4 of 16 runs (spell: XLA does not compile it: it has no kernel for AsString)"
    assert told in done.stdout + done.stderr
    assert done.stdout.startswith("TPUStrategy.run(fn, ...) does not support pure eager execution.\n")
    # The program itself does what it does without an estimate.
    bare = _hooked(program, PODYARD_TF_REPLICAS=replicas)
    assert bare.stdout.splitlines()[:2] == done.stdout.splitlines()[:2]


LARGE = """
import tensorflow as tf
@tf.function(jit_compile=True)
def outer(x):
    return tf.reduce_sum(tf.sort(tf.tensordot(x, x, 0), 0))
print(float(outer(tf.ones(70_000))))
"""


def test_a_function_that_does_not_fit_is_refused_before_it_runs() -> None:
    done = _start(["--strict"], "-c", LARGE, code=1)
    assert "podyard: outer does not fit on v3-8: 73.0 GiB of 15.5 GiB a core" in done.stderr + done.stdout
    assert (
        "ResourceExhaustedError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory" in done.stderr
    )
