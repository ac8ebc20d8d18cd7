"""`podyard job export`: a SavedModel that plain TensorFlow loads with equal predictions, and
StableHLO for cpu, cuda and tpu. No GPU is here: for cuda the lowering alone is checked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from podyard.engine.recipes.digits import load_digits
from tests.clients.client import ENVIRONMENTS
from tests.conftest import require
from tests.stack import Stack

ZONE = "us-central1-f"
PROGRAM = Path(__file__).parents[1] / "programs" / "saved_model.py"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


def _export(stack: Stack, job: str, folder: Path) -> list[str]:
    words = ("--zone", ZONE, "--data", str(stack.data), "-o", str(folder))
    done = stack.command("job", "export", job, *words)
    assert done.returncode == 0, done.stderr
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_job_is_exported_and_plain_tensorflow_predicts_the_same(
    stack: Stack, tmp_path: Path
) -> None:
    python = ENVIRONMENTS / "tf" / "bin" / "python"
    require(str(python) if python.is_file() else None, "the environment tf of `make real`")
    path = stack.submit(
        "leaves", ZONE, acceleratorType="v2-8", runtimeVersion="tpu-vm-base", steps=60
    )
    assert stack.wait_job(path)["state"] == "SUCCEEDED"
    jobs = f"/podyard/v1/projects/demo/locations/{ZONE}/jobs"
    before = {job["name"] for job in stack.pages(f"{jobs}?", "jobs")}
    names = _export(stack, "leaves", tmp_path / "out")
    assert names == [
        "manifest.json", "model.safetensors", "predict.stablehlo", "saved_model/saved_model.pb",
    ]  # fmt: skip
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert set(manifest["platforms"]) == {"cpu", "cuda", "tpu"} and manifest["step"] == 60
    # The job had no export, so that another one made it; that one is not repeated.
    (made,) = {job["name"] for job in stack.pages(f"{jobs}?", "jobs")} - before
    assert _export(stack, made.split("/")[-1], tmp_path / "again") == names
    assert len(stack.pages(f"{jobs}?", "jobs")) == len(before) + 1
    test = load_digits().test
    images, answers = tmp_path / "images.npz", tmp_path / "answers.npz"
    np.savez(images, image=test.slice(0, test.count)["image"])
    folder = str(tmp_path / "out")
    ours = stack.command("predict", "--export", folder, "--input", str(images), "-o", str(answers))
    assert ours.returncode == 0, ours.stderr
    theirs = tmp_path / "theirs.npy"
    done = subprocess.run(
        [str(python), str(PROGRAM), f"{folder}/saved_model", str(images), str(theirs)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    expected = np.load(answers)["answers"]
    assert len(set(expected.tolist())) == 10
    assert np.load(theirs).tolist() == expected.tolist()
