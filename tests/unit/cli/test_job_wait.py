"""`--wait` where stderr is no terminal."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from podyard.base.clock import ManualClock, RealTime
from podyard.cli.jobs.progress import wait_for_job
from podyard.cli.kit.client import Client, Target


def _job(state: str, done: int, reason: str = "") -> dict[str, Any]:
    return {
        "state": state,
        "stateReason": reason,
        "stepsDone": done,
        "steps": 300,
        "metrics": {"latest": {"loss": 1.0 / (done + 1)}},
        "wallSeconds": done,
    }


def test_a_pipe_gets_one_line_for_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        *(_job("QUEUED", 0, f"place {place} in the queue") for place in (12, 11, 10)),
        *(_job("RUNNING", done) for done in range(200)),
        _job("RECOVERING", 200, "replica 0: the program ended with exit code 1"),
        *(_job("RUNNING", done) for done in range(100, 300)),
        _job("SUCCEEDED", 300, "all steps done"),
    ]
    clock = ManualClock(RealTime.from_rfc3339("2026-03-01T00:00:00Z"))
    client = Client(Target("http://nobody", "", "demo", ""), clock)
    with mock.patch.object(client, "call", side_effect=answers):
        assert wait_for_job(client, "projects/demo/locations/z/jobs/j", None)["stepsDone"] == 300
    client.close()
    lines = capsys.readouterr().err.splitlines()
    states = [line.split()[0] for line in lines]
    assert states == ["QUEUED", "RUNNING", "RECOVERING", "RUNNING", "SUCCEEDED"], lines
