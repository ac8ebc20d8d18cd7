"""Estimators as listings of 2018 print them: trained, evaluated, priced, and gone on with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from podyard.base.clock import OsClock
from podyard.engine.training.input.crc32c import crc32c, mask
from tests.clients.listings.documents import Indents, edit, indent, listing
from tests.clients.listings.program import FOLDER, PROGRAMS, ProgramEnd, environ, run_program
from tests.stack import PODYARD

pytestmark = pytest.mark.slow
RUNTIME = "1.15"
LISTING = PROGRAMS / "listings" / "estimator.py"
# (first line, last line, spaces): print has lost them
INDENTS: Indents = (
    (7, 11, 4), (9, 9, 8), (10, 10, 12), (13, 57, 4), (14, 14, 8), (43, 46, 8), (59, 80, 4),
    (60, 79, 8), (62, 72, 12),
)  # fmt: skip
EDITS = (
    ("1\\.", "1."),  # an escape of Markdown
    ("/home/armando/models/mnist", "model"),
    ("/home/armando/datasets/mnist/", ""),
    # a name that the listing uses and never defines
    (
        "learning_rate = 0.01",
        "class FLAGS: dataset_reader_buffer_size = 2**20\nlearning_rate = 0.01",
    ),
)


def _flops(examples: int, weights: int, first: int) -> float:
    """Return FLOPs of a step: forward, and twice that backward but for the first layer."""
    return 2.0 * examples * (3 * weights - first)


def test_a_model_function_without_params_trains_and_goes_on(tmp_path: Path) -> None:
    program = str(LISTING)
    end = run_program(RUNTIME, tmp_path, program, "model", "100", kind="v2-8")
    assert end.out.startswith("steps 100 accuracy 0.9") or "accuracy 1.0" in end.out
    assert {name: one["runs"] for name, one in end.modules.items()} == {
        "train_step": 100, "eval_step": 10,
    }  # fmt: skip
    assert end.step is not None and end.step["name"] == "train_step"
    # A replica has 16 of 128 examples.
    weights = 784 * 64 + 64 * 10
    expected = _flops(16, weights, 784 * 64) + 12 * weights  # what Adam does for each weight
    assert end.step["flopsPerDevice"] == pytest.approx(expected, rel=0.02)
    assert "step train_step: " in end.out + end.err
    more = run_program(RUNTIME, tmp_path, program, "model", "150", kind="v2-8")
    assert more.out.startswith("steps 150 ") and more.modules["train_step"]["runs"] == 50
    assert "model.ckpt-100" in more.err


def test_a_program_that_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    pid, wait = tmp_path / "pid", OsClock().sleep
    own = f"import os; open({str(pid)!r}, 'w').write(str(os.getpid()))"
    (tmp_path / "listing.py").write_text(f"{own}\n{LISTING.read_text()}")
    options = ("--tpu", "v2-8", "--runtime", RUNTIME)
    with subprocess.Popen(
        [*PODYARD, "run", *options, "--", "python", "listing.py", "model", "1000000"],
        env=environ(),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as first:
        while not list((tmp_path / "model").glob("model.ckpt-50*.index")):
            assert first.poll() is None
            wait(0.1)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        assert first.wait(60) != 0
    (state,) = (tmp_path / "model").glob("checkpoint")
    step = int(re.findall(r'^model_checkpoint_path: "model.ckpt-(\d+)"', state.read_text())[0])
    second = run_program(RUNTIME, tmp_path, "listing.py", "model", str(step + 100), kind="v2-8")
    assert second.modules["train_step"]["runs"] == 100 and f"model.ckpt-{step}" in second.err
    assert second.out.startswith(f"steps {step + 100} ")


def test_the_same_program_runs_on_a_pod(tmp_path: Path) -> None:
    end = run_program(RUNTIME, tmp_path, str(LISTING), "model", "60", kind="v2-32")
    assert end.out.startswith("steps 60 accuracy ")
    assert "*** Num TPU Cores: 32" in end.logged and "*** Num TPU Workers: 4" in end.logged
    assert end.modules["train_step"]["devices"] == 32


def test_an_exported_model_predicts_the_same_in_plain_tensorflow(tmp_path: Path) -> None:
    end = run_program(RUNTIME, tmp_path, str(LISTING), "model", "60", "saved", kind="v2-8")
    assert end.modules["predict_step"]["runs"] == 1
    scores = json.loads(end.out.split("scores ")[1].split("\n")[0])
    code = (
        "import numpy as np, sys, tensorflow as tf\n"
        "serve = tf.saved_model.load(sys.argv[1], tags=['serve']).signatures['serving_default']\n"
        "images = tf.constant(np.eye(8, 784, dtype=np.float32) * 3)\n"
        "print(serve(image=images)['scores'][0].numpy().tolist())\n"
    )
    saved = end.out.split("saved ")[1].strip()
    (python,) = Path(FOLDER).glob("tensorflow-2.15.1-*/bin/python")
    plain = subprocess.run(
        [python, "-c", code, saved],
        env=environ() | {"PODYARD_TPU": "off", "PYTHONPATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert plain.returncode == 0, plain.stderr
    assert json.loads(plain.stdout) == pytest.approx(scores, rel=1e-5)


def _record(data: bytes) -> bytes:
    head = len(data).to_bytes(8, "little")
    sums = (mask(crc32c(one)).to_bytes(4, "little") for one in (head, data))
    return head + next(sums) + data + next(sums)


def _field(number: int, data: bytes) -> bytes:
    size = len(data)
    return (
        bytes([number << 3 | 2, *([size] if size < 128 else [size & 127 | 128, size >> 7])]) + data
    )


def _write_records(path: Path, count: int, seed: int) -> None:
    """Write tf.Examples with an image of 28 x 28 bytes and its label."""
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        for _ in range(count):
            label = int(random.integers(10))
            image = random.integers(0, 60, 784).astype(np.uint8)
            image[label * 70 : label * 70 + 40] = 255
            values = {
                b"image_raw": _field(1, _field(1, image.tobytes())),
                b"label": _field(3, _field(1, bytes([label]))),
            }
            entries = (_field(1, _field(1, name) + _field(2, one)) for name, one in values.items())
            file.write(_record(_field(1, b"".join(entries))))


def _listing_end(folder: Path) -> ProgramEnd:
    text = "\n".join(indent(listing("001", "```py", "```"), INDENTS))
    (folder / "listing.py").write_text(edit(text, EDITS))
    return run_program(RUNTIME, folder, "listing.py", kind="v2-8")


def test_the_listing_of_the_document_trains_evaluates_and_is_priced(tmp_path: Path) -> None:
    _write_records(tmp_path / "train", 2048, 0)
    _write_records(tmp_path / "test", 1536, 1)
    end = _listing_end(tmp_path)
    assert "Saving dict for global step 1000: accuracy = " in end.err
    runs = {name: one["runs"] for name, one in end.modules.items()}
    assert runs == {"train_step": 1000, "eval_step": 10}
    assert end.step is not None and end.step["error"] == ""
    first = 28 * 28 * 32 * 25
    weights = first + 14 * 14 * 64 * 25 * 32 + 3136 * 128 + 1280
    assert end.step["flopsPerDevice"] == pytest.approx(_flops(16, weights, first), rel=0.05)
    again = _listing_end(tmp_path)
    assert "model.ckpt-1000" in again.err and again.modules["eval_step"]["runs"] == 10
    assert "train_step" not in again.modules, "nothing is left to train"
