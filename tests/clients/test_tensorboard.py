"""TensorBoard's own reader on the event files of jobs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.client import ENVIRONMENTS
from tests.conftest import require
from tests.stack import PODYARD, Stack

ZONE = "us-central1-f"
PROGRAM = Path(__file__).parent / "programs" / "tensorboard_curves.py"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


def test_the_curve_of_a_recipe_is_what_the_job_says(stack: Stack, tmp_path: Path) -> None:
    python = ENVIRONMENTS / "storage" / "bin" / "python"
    require(str(python) if python.is_file() else None, "the environment storage of `make real`")
    stack.create_node("curves", "v2-8", ZONE)
    path = stack.submit(
        "curves", ZONE, node="curves", steps=40, training={"evaluateEverySteps": 20}
    )
    assert stack.wait_job(path)["state"] == "SUCCEEDED"
    command = (
        "tensorboard",
        "curves",
        "--zone",
        ZONE,
        "--download-only",
        "--logdir",
        str(tmp_path),
    )
    subprocess.run([*PODYARD, *command, "--data", str(stack.data)], check=True, timeout=60)
    done = subprocess.run(
        [python, PROGRAM, tmp_path / "curves"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    curves = json.loads(done.stdout.splitlines()[-1])
    points = stack.metrics(path)
    for name in ("loss", "accuracy"):
        assert [step for step, _ in curves[name]] == list(range(1, 41))
        assert [value for _, value in curves[name]] == pytest.approx(
            [point[name] for point in points]
        )
    assert [step for step, _ in curves["val_loss"]] == [20, 40]
