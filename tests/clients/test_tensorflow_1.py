"""Programs for TensorFlow 1, as they were written in 2018 and 2019, on the last release that has
their estimators."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from podyard.programs.environments import FOLDER_VARIABLE
from tests.stack import PODYARD

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
EXAMPLES, PROGRAMS = ROOT / "examples" / "programs", ROOT / "tests" / "programs"
FOLDER = {FOLDER_VARIABLE: str(ROOT / ".venv-clients" / "runtimes")}  # kept for the next run
CORES = re.compile(r"\*\*\* Num TPU Cores: 8$", re.MULTILINE)
IS_FOR_1 = (
    "podyard: this program is for TensorFlow 1: it has tensorflow.compat.v1 of 2.15.1; "
    "replicas are fused"
)


def _run(*command: str, code: int = 0, **changes: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    done = subprocess.run(
        [*PODYARD, "run", "--tpu", "v3-8", "--runtime", "1.15", "--", "python", *command],
        env=environ | FOLDER | changes, capture_output=True, text=True, timeout=900,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def _estimate(folder: Path, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return _run(
        str(EXAMPLES / "tpu_estimator_mnist.py"), f"--model_dir={folder}", *options, code=code
    )


def _without_podyard(folder: Path) -> subprocess.CompletedProcess[str]:
    """The same program where nothing of ours is, with the names of TensorFlow 2.15 and on the
    CPU."""
    text = (EXAMPLES / "tpu_estimator_mnist.py").read_text()
    for old, new in (
        ("import tensorflow as tf\n",
            "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"),
        ("from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer\n",
         "tpu_config = tpu_estimator = tf.estimator.tpu\n"),
        ("tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu)", "None"),
    ):  # fmt: skip
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    program = folder / "plain.py"
    program.write_text(text)
    (python,) = Path(FOLDER[FOLDER_VARIABLE]).glob("tensorflow-2.15.1-*/bin/python")
    command = [python, program, f"--model_dir={folder / 'plain'}", "--use_tpu=false"]
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PODYARD_", "PYTHON"))
    }
    done = subprocess.run(
        command,
        env=environ | {"PODYARD_TPU": "off"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def _loss(done: subprocess.CompletedProcess[str]) -> str:
    return re.findall(r"Saving dict for global step 30: .*loss = ([0-9.]+)", done.stderr)[-1]


def test_an_estimator_trains_evaluates_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    done = _estimate(tmp_path / "tpu")
    assert re.fullmatch(r"steps 30 accuracy (0\.[89]\d\d|1\.000)\n", done.stdout)
    assert CORES.search(done.stderr) and IS_FOR_1 in done.stderr
    assert _loss(_without_podyard(tmp_path)) == _loss(done), "the global batch is the same"
    on = _estimate(tmp_path / "tpu", "--train_steps=40")
    assert on.stdout.startswith("steps 40 ")
    assert "model.ckpt-30" in on.stderr


def test_a_batch_that_the_cores_cannot_share_is_refused(tmp_path: Path) -> None:
    done = _estimate(tmp_path, "--batch_size=60", code=1)
    assert (
        "ValueError: train_batch_size 60 cannot be shared evenly: 8 cores have the same number"
        in done.stderr
    )


def test_a_keras_model_is_given_to_the_tpu_of_colab() -> None:
    done = _run(str(EXAMPLES / "colab_keras_to_tpu_model.py"))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("devices: ") and lines[2] == "predictions (8, 10)"
    assert float(lines[1].removeprefix("accuracy ")) > 0.9
    assert CORES.search(done.stderr)


def test_a_computation_without_estimators() -> None:
    assert _run(str(PROGRAMS / "tensorflow_1_rewrite.py")).stdout.splitlines() == [
        "[[4.0, 4.0, 4.0], [4.0, 4.0, 4.0], [4.0, 4.0, 4.0]] 32.0",
        "input 15 cannot be shared evenly: 8 cores have the same number of examples each",
        (
            "module 'tensorflow.contrib' has no attribute 'slim': contrib has cluster_resolver, "
            "data, distribute, eager, estimator, framework, layers, metrics, rnn, summary, tpu, "
            "training here"
        ),
    ]


def test_a_library_that_looks_for_names_of_tensorflow_1_changes_nothing(tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "looks.py").write_text(
        "import tensorflow as tf\n"
        "found = [hasattr(tf, name) for name in ('contrib', 'Session', 'app')]\n"
        "try:\n    import tensorflow.contrib\nexcept ImportError:\n    found.append(False)\n"
    )
    code = (
        "import looks, tensorflow as tf; print(looks.found, tf.executing_eagerly(), "
        "hasattr(tf, "
        "'no_such_name'))"
    )
    done = _run("-c", code, PYTHONPATH=str(library))
    assert done.stdout.splitlines() == ["[False, False, False, False] True False"]
    assert "program is for TensorFlow 1" not in done.stderr


def test_a_keras_model_made_before_any_name_of_tensorflow_1_is_given_to_the_tpu() -> None:
    done = _run(str(PROGRAMS / "listings" / "keras_to_tpu_model.py"))
    assert done.stdout == "accuracy True\n"
    assert CORES.search(done.stderr) and IS_FOR_1 in done.stderr
