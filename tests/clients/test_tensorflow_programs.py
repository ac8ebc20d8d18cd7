"""TensorFlow programs under TPUStrategy, started as a person would."""

from __future__ import annotations

import json
import os
import re
import signal
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
        env=environ | changes, capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def _run(kind: str, *command: str, **changes: str) -> str:
    return _start((), *command, kind=kind, **changes).stdout


def _hooked(*command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """With devices, and without an estimate."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    environ |= {"PYTHONPATH": str(SITE_HOOK), "PODYARD_TPU": "v3-8"}
    return subprocess.run(
        [PYTHON, *command], env=environ | changes, capture_output=True, text=True, timeout=300
    )


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
"""  # noqa: E501
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
        ["--batch", "128", "--report", str(report)],
        str(EXAMPLES / "tpu_strategy_cnn.py"),
        PODYARD_TF_REPLICAS=replicas,
    )
    modules = _modules(report)
    train, predict = modules["train_step", 8], modules["predict_step", 8]
    assert (train["runs"], predict["runs"], len(modules)) == (32, 1, 2)
    # Three times the flops of the forward pass, of which the first layer needs two; 16 images a
    # replica.
    forward = [32 * 32 * 32 * 27, 16 * 16 * 64 * 9 * 32, 8 * 8 * 64 * 128, 128 * 10]
    assert train["flopsPerDevice"] == pytest.approx(
        2 * 16 * (3 * sum(forward) - forward[0]), rel=0.05
    )
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
    told = "operation AsString, StringLength (module line 12), run on the host: "
    assert told in done.stderr
    assert done.stdout.startswith(
        "TPUStrategy.run(fn, ...) does not support pure eager execution.\n"
    )
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
    assert (
        "podyard: outer does not fit on v3-8: 73.0 GiB of 15.5 GiB a core"
        in done.stderr + done.stdout
    )
    assert (
        "ResourceExhaustedError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran "
        "out of memory" in done.stderr
    )


def test_losses_are_those_of_plain_keras() -> None:
    """Later steps differ as much as plain Keras differs from itself with the examples of a batch in
    another order."""
    command = [str(PROGRAMS / "tensorflow_losses.py"), "adam", "8"]
    plain = subprocess.run(
        [PYTHON, *command], capture_output=True, text=True, timeout=300, check=True
    ).stdout
    assert _hooked(*command, PODYARD_TF_REPLICAS="fused").stdout == plain
    mirrored = _hooked(*command, PODYARD_TF_REPLICAS="mirrored").stdout
    assert [float(loss) for loss in mirrored.split()] == pytest.approx(
        [float(loss) for loss in plain.split()], rel=1e-6
    )


def test_a_fit_goes_on_after_its_slice_was_taken_back(tmp_path: Path) -> None:
    program = str(PROGRAMS / "tensorflow_preempted.py")
    command = [*PODYARD, "run", "--tpu", "v3-8", "--", PYTHON, program]
    whole = subprocess.run(
        [*command, str(tmp_path / "whole")], capture_output=True, text=True, timeout=300
    )
    with subprocess.Popen(
        [*command, str(tmp_path / "cut"), "wait"], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        while "epoch 2" not in first.stdout.readline():
            pass
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 143
    second = subprocess.run(
        [*command, str(tmp_path / "cut")], capture_output=True, text=True, timeout=300
    )
    epochs = [line for line in second.stdout.splitlines() if line.startswith("epoch")]
    assert epochs[-1] == "epoch 5" and epochs[0] in ("epoch 2", "epoch 3"), second.stderr
    ends = [
        next(line for line in done.stdout.splitlines() if line.startswith("losses"))
        for done in (whole, second)
    ]
    assert ends[0].split()[-3:] == ends[1].split()[-3:]
    assert "saved 41 ['best.weights.h5', 'notice.keras']" in second.stdout


DOCUMENT = """
import os
import tensorflow as tf
tf.get_logger().setLevel("INFO")
tpu_address = 'grpc://' + os.environ['COLAB_TPU_ADDR']
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu_address)
print('Running on TPU ', resolver.cluster_spec().as_dict()['worker'][0].rpartition(':')[2], resolver.master()[-5:])
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.experimental.TPUStrategy(resolver)
print("REPLICAS: ", strategy.num_replicas_in_sync, resolver.num_accelerators())
print(len(tf.config.list_logical_devices('TPU')))
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    adam = tf.keras.optimizers.Adam(lr=0.25)
    model.compile(adam, "mse", experimental_steps_per_execution=2)
print(adam.learning_rate.numpy(), model.steps_per_execution)
for name in ("my-tpu", "", "local"):
    print(tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name).num_accelerators())
"""  # noqa: E501


def test_documents_of_users_run_as_they_are_written() -> None:
    done = _start((), "-c", DOCUMENT)
    assert done.stdout.splitlines() == [
        "Running on TPU  8470 :8470", "REPLICAS:  8 {'TPU': 8}", "8", "0.25 2", *["{'TPU': 8}"] * 3,
    ]  # fmt: skip
    logged = [line for line in done.stderr.splitlines() if line.startswith("INFO:tensorflow:")]
    assert logged[:6] == [
        f"INFO:tensorflow:{line}"
        for line in (
            logged[0].removeprefix("INFO:tensorflow:"), "Finished initializing TPU system.",
            "Found TPU system:",
            "*** Num TPU Cores: 8", "*** Num TPU Workers: 1", "*** Num TPU Cores Per Worker: 8",
        )
    ]  # fmt: skip
    assert logged[0].startswith("INFO:tensorflow:Initializing the TPU system: grpc://")
    assert len(logged) == len(set(logged)) == 14, "each line once"
    assert logged[6] == (
        "INFO:tensorflow:*** Available Device: "
        "_DeviceAttributes(/job:worker/replica:0/task:0/device:TPU:0, TPU, 0, 0)"
    )
    assert (
        "podyard: Adam: lr is learning_rate in this Keras: learning_rate=0.25 is used"
        in done.stderr
    )
    assert "experimental_steps_per_execution is steps_per_execution in this Keras" in done.stderr


UNEQUAL = """
import numpy as np, tensorflow as tf
strategy = tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver())
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((200, 4)), np.ones((200, 1)), batch_size=100, verbose=0)
"""


def test_a_batch_that_replicas_cannot_share_evenly_runs() -> None:
    for replicas in ("mirrored", "fused"):
        assert "Traceback" not in _start((), "-c", UNEQUAL, PODYARD_TF_REPLICAS=replicas).stderr


def test_programs_for_tensorflow_1_and_dry_runs_are_refused_in_words() -> None:
    done = _start((), "-c", "import tensorflow as tf; tf.Session()", code=1)
    lines = done.stderr.splitlines()
    error = next(place for place, line in enumerate(lines) if line.startswith("AttributeError"))
    assert lines[error + 1].startswith(
        "podyard: this program is for TensorFlow 1: it runs with TensorFlow 2.15, the"
    )
    dry = _start(["--dry-run"], "-c", UNEQUAL, code=1)
    assert (
        "podyard: a dry run needs JAX: steps of TensorFlow are computed; leave --dry-run away"
        in dry.stderr
    )


PIPELINES = """
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops as pipelines
strategy = tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver())
create, created = pipelines._create_device_dataset, []
pipelines._create_device_dataset = lambda *args: created.append(create(*args)) or created[-1]
source = tf.data.Dataset.range(64).batch(16, drop_remainder=True)
print(sum(strategy.reduce("sum", batch, axis=0) for batch in strategy.experimental_distribute_dataset(source)).numpy())
print(len(created), {dataset.options().autotune.enabled for dataset in created})
"""  # noqa: E501


def test_no_pipeline_of_a_replica_has_a_thread_that_tunes_it() -> None:
    """Such a thread sleeps for up to a minute where the program waits for its end: fits stood
    still."""
    assert _hooked("-c", PIPELINES).stdout.split("\n")[-3:-1] == ["2016", "8 {False}"]


def test_what_xla_does_not_compile_runs_on_the_host_and_is_priced() -> None:
    program = str(PROGRAMS / "soft_placement.py")
    seconds: dict[str, float] = {}
    for kind, operations in {
        "plain": "",
        "print": "AsString, StringFormat, PrintV2",
        "python": "EagerPyFunc",
        "summary": "WriteSummary",
        "branch": "StringFormat, PrintV2",
        "table": "LookupTableFindV2",
        "outside": "Relu",
        "unique": "",
    }.items():
        report = _start((), program, kind, kind="v2-8").stderr
        assert "not covered" not in report, report
        assert ("run on the host: transfers are counted" in report) == bool(operations)
        assert not operations or f"operation {operations} (" in report, report
        row = re.search(r"^replica +3 +([\d.]+) (us|ms) ", report, re.MULTILINE)
        assert row is not None, report
        seconds[kind] = float(row[1]) * (1e-6 if row[2] == "us" else 1e-3)
    # A replica's part of the batch, there and back over half of a chip's link.
    way = 64 * 512 * 4 / 7.5e9
    for kind in ("python", "outside", "table"):
        assert 1.4 * way < seconds[kind] - seconds["plain"] < 2.6 * way, seconds
    assert seconds["print"] - seconds["plain"] < 1e-6


def test_without_soft_placement_tensorflow_says_what_xla_does_not_compile() -> None:
    program = str(PROGRAMS / "soft_placement.py")
    done = _start((), program, "print", "off", kind="v2-8", code=1)
    assert "No registered 'AsString' OpKernel for XLA_TPU_JIT devices" in done.stderr
    assert "tf.config.set_soft_device_placement(True)" in done.stderr
    assert "trained" in _start((), program, "unique", "off", kind="v2-8").stdout
