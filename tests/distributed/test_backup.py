"""The restore drill: a backup of a running yard, killed in the middle and taken again; restored
elsewhere, its job goes on from its checkpoint to the bits of the original."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.stack import PODYARD, Stack, open_stack
from tests.waiting import patient

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

ZONE = "us-central1-f"
STEPS = 480  # five backups end before the job does, also where other programs use the machine


def test_a_yard_is_restored_elsewhere_in_the_middle_of_a_job(tmp_path: Path) -> None:
    original, target = tmp_path / "original", tmp_path / "elsewhere"
    archive = tmp_path / "yard.tar"
    with open_stack(original) as stack:
        stack.create_node("slice", "v2-8", ZONE)
        path = stack.submit("job", ZONE, node="slice", steps=STEPS, checkpointEverySteps=20)
        stack.wait_steps(path, 45)
        _killed_backups(stack, archive, tmp_path / "cut-short")
        assert json.loads(_backup(stack, archive))["missing"] == []
        finished = stack.wait_job(path)
        assert finished["state"] == "SUCCEEDED", finished
        digest = stack.params_sha256(path)
        usage = stack.call("GET", "/podyard/v1/projects/demo/usage")["seconds"]
    assert usage > 0
    restored = Stack(target)
    _restore(archive, target)
    assert restored.violations() == []
    with open_stack(target) as stack:
        job = stack.call("GET", path)
        assert (job["state"], job["stepsDone"] >= 45) == ("RUNNING", True), job
        job = stack.wait_job(path)
        assert (job["state"], job["failures"]) == ("SUCCEEDED", 0), job
        assert stack.params_sha256(path) == digest
        assert sorted({point["step"] for point in stack.metrics(path)}) == list(range(1, STEPS + 1))


def _backup(stack: Stack, archive: Path) -> str:
    command = [*PODYARD, "admin", "backup", str(archive), "--data", str(stack.data), "-o", "json"]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=patient(60)
    ).stdout


def _killed_backups(stack: Stack, archive: Path, target: Path) -> None:
    """Kills backups at several moments. What lies under the archive's name then is a whole archive,
    or nothing."""
    command = [*PODYARD, "admin", "backup", str(archive), "--data", str(stack.data)]
    killed = 0
    for seconds in (0.2, 0.4, 0.6, 0.9):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
            if archive.exists():
                _restore(archive, target / str(seconds))
        archive.unlink(missing_ok=True)
    assert killed > 0


def _restore(archive: Path, target: Path) -> None:
    command = [*PODYARD, "admin", "restore", str(archive), "--data", str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=patient(60))
