"""How much the page of a running job is sent each second. Bytes are counted over 25 rounds, nothing
is timed."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path

import pytest
from anyio import to_thread

from podyard.web.front import pages
from podyard.web.kit import live
from tests.unit.control.gang import Gang, submit
from tests.yard import ZONE, open_yard

STEPS_A_SECOND = 40
CHECKPOINT_STEPS = 100
SECONDS = 25
BYTES_A_SECOND_MAX = 2_000


class TrainingJob:
    """A job that does forty steps a second and keeps a checkpoint every hundred."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang
        self.path = submit(gang, steps=100_000, checkpointEverySteps=CHECKPOINT_STEPS)
        (self._replica,) = gang.sync()
        self.step = 0

    def second(self) -> None:
        steps = range(self.step + 1, self.step + STEPS_A_SECOND + 1)
        self.step = steps[-1]
        saved = [step for step in steps if step % CHECKPOINT_STEPS == 0]
        answer = self._gang.report(
            self._replica,
            metrics=[
                {
                    "step": step,
                    "metrics": _measured(step),
                    "wallSeconds": 0.025,
                    "modelledSeconds": 0.000168,
                }
                for step in steps
            ],
            checkpoints=[{"step": step, "name": f"c{step}", "sha256": "0" * 64} for step in saved],
        )
        assert answer.status_code == 200, answer.text
        self._gang.yard.step(1.0)


def _measured(step: int) -> dict[str, float]:
    noise = 0.05 * math.sin(step * 12.9898)
    return {
        "loss": 2.3 * math.exp(-step / 300) + 0.1 + noise,
        "accuracy": 1 - 0.9 * math.exp(-step / 300) + noise / 10,
    }


def test_the_stream_of_a_running_job_is_at_most_2_kb_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_yard(tmp_path, routers=(pages.router,)) as yard:
        yard.create("n")
        job = TrainingJob(Gang(yard))
        for _ in range(10):
            job.second()
        page = yard.call("GET", f"/console/demo/jobs/{ZONE}/j").text
        found = re.search(r'data-live="([^"]+)"', page)
        assert found is not None

        async def sleep(_: float) -> None:
            await to_thread.run_sync(job.second)

        monkeypatch.setattr(live.anyio, "sleep", sleep)
        monkeypatch.setattr(live, "STREAM_SECONDS_MAX", SECONDS)
        # each round is rendered
        monkeypatch.setattr(live, "_is_stale", lambda rendering, _: rendering.parts.done())
        sent = yard.call("GET", html.unescape(found[1])).content
    assert f"step {job.step - STEPS_A_SECOND:,} of 100,000".encode() in sent, (
        "the last round has come"
    )
    assert sent.count(b"event: points") >= SECONDS - 1 or sent.count(b"event:") > SECONDS, (
        "and all before it"
    )
    assert len(sent) <= SECONDS * BYTES_A_SECOND_MAX, f"{len(sent) / SECONDS:.0f} bytes a second"
