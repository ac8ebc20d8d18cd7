"""fastai as pip installs it, on one core of a TPU."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.client import ENVIRONMENTS
from tests.conftest import require
from tests.stack import PODYARD
from tests.waiting import patient

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[2] / "examples" / "programs" / "fastai_vision.py"
SECONDS = 300.0


def test_a_vision_learner_trains_is_exported_and_priced(tmp_path: Path) -> None:
    folder = ENVIRONMENTS / "fastai"
    has_fastai = (folder / ".made").is_file()
    python = require(
        str(folder / "bin" / "python") if has_fastai else None,
        "the environment fastai of `make real`",
    )
    if subprocess.run([python, "-c", "import torchvision"], capture_output=True).returncode:
        # A package index may have a torchvision that does not load next to a torch for CPUs.
        pytest.skip("torchvision does not load in the environment fastai")
    done = subprocess.run(
        [*PODYARD, "run", "--tpu", "v3-8", "--", python, str(PROGRAM)],
        capture_output=True, text=True, timeout=patient(SECONDS), stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    losses = re.search(r"xla:0: loss (\d\.\d\d) to (\d\.\d\d)", done.stdout)
    assert losses and float(losses[2]) < float(losses[1]), done.stdout
    assert "exported, predicts True" in done.stdout
    assert (tmp_path / "images" / "model.pkl").is_file()
    text = done.stdout + done.stderr
    assert re.search(r"torch_train_step +[1-9]\d* +[\d.]+ ms", text), text
