"""A replica's reports: in order, nothing lost, and the lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from podyard.base.clock import ManualClock, RealTime
from podyard.base.errors import Code, PodyardError
from podyard.workers.replica.reporter import ITEMS_PER_REPORT_MAX, REPORT_SECONDS, Reporter
from tests.waiting import patient


class _Api:
    """Takes reports, or is away for the next `away` calls."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.away = 0
        self.desired = "RUN"
        self.pinned: int | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        assert (method, path) == ("POST", "/podyard/v1/replicas/r:report")
        if self.away:
            self.away -= 1
            raise PodyardError(Code.UNAVAILABLE, "away")
        assert body is not None
        self.taken.append(dict(body))
        return {"desired": self.desired, "leaseSeconds": 15, "pinnedStep": self.pinned}

    def logs(self) -> list[dict[str, Any]]:
        return [body["log"] for body in self.taken if "log" in body]

    def all(self, name: str) -> list[Any]:
        return [item for body in self.taken for item in body[name]]


def _reporter(api: _Api, stopped: list[str], resume_step: int = 0) -> Reporter:
    clock = ManualClock(RealTime(0))
    return Reporter(
        api, "r", 3, 15.0, resume_step, clock, stopped.append, lambda: stopped.append("lapsed")
    )


def test_checkpoints_from_the_pinned_one_on_stay() -> None:
    api = _Api()
    reporter = _reporter(api, [], resume_step=8)
    assert reporter.resumable_step() == 8
    api.pinned = 4
    reporter.checkpoint(10, "c", "0" * 64, is_best=False)
    reporter.close("YIELDED", None)
    assert reporter.resumable_step() == 4


def test_everything_is_accepted_before_the_end_is_said() -> None:
    api, stopped = _Api(), []
    reporter = _reporter(api, stopped)
    count = 2 * ITEMS_PER_REPORT_MAX + 5
    for step in range(1, count + 1):
        reporter.step(step, 1.0, 0.5, 0.1, 0.01)
    reporter.log("hello")
    reporter.checkpoint(5, "c", "0" * 64, is_best=True)
    reporter.on_evaluation(5, {"val_loss": 0.5, "val_gap": float("inf")})
    reporter.on_prune([1, 3])
    reporter.on_end({"testAccuracy": 0.9})
    api.away = 3
    reporter.close("SUCCEEDED", None)
    assert [point["step"] for point in api.all("metrics")] == list(range(1, count + 1))
    assert [(log["seq"], log["lines"], log["text"]) for log in api.logs()] == [(0, 1, "o0 hello\n")]
    assert api.all("checkpoints") == [{"step": 5, "name": "c", "sha256": "0" * 64, "best": True}]
    assert api.all("evaluations") == [{"step": 5, "metrics": {"val_loss": 0.5}}]
    assert api.all("pruned") == [1, 3]
    # only what the platform has heard of may make older ones unneeded
    assert reporter.resumable_step() == 5
    assert [body["state"] for body in api.taken] == ["RUNNING"] * 3 + ["SUCCEEDED"]
    assert api.taken[0]["summary"] == {"testAccuracy": 0.9}
    assert all(body["fence"] == 3 for body in api.taken)
    assert stopped == []


def test_the_end_is_not_said_after_the_lease() -> None:
    api = _Api()
    reporter = _reporter(api, [])
    reporter.log("x")
    api.away = int(15 / REPORT_SECONDS) + 5
    with pytest.raises(PodyardError, match="away"):
        reporter.close("SUCCEEDED", None)
    assert api.taken == []


def test_the_lease_ends_while_a_report_hangs() -> None:
    lapsed, calls, heal = threading.Event(), threading.Event(), threading.Event()
    clock = ManualClock(RealTime(0))

    class Hanging(_Api):
        def call(
            self, method: str, path: str, body: Mapping[str, Any] | None = None
        ) -> dict[str, Any]:
            calls.set()
            heal.wait()
            raise PodyardError(Code.UNAVAILABLE, "away")

    reporter = Reporter(Hanging(), "r", 3, 15.0, 0, clock, pytest.fail, lapsed.set)
    reporter.start()
    reporter.checkpoint(1, "c", "0" * 64, is_best=False)
    assert calls.wait(patient(10)) and not lapsed.is_set()
    clock.advance(15.1)
    assert lapsed.wait(patient(10))
    heal.set()
    with pytest.raises(PodyardError, match="away"):
        reporter.close("SUCCEEDED", None)


def test_a_stop_is_heard_once() -> None:
    api, stopped = _Api(), []
    reporter = _reporter(api, stopped)
    api.desired = "STOP"
    for _ in range(2):
        reporter._send("RUNNING", None)
    assert stopped == ["the platform asked this replica to stop"]
    assert reporter.stopping()


def test_a_replica_that_shall_yield_goes_on_until_it_has() -> None:
    api, stopped = _Api(), []
    reporter = _reporter(api, stopped)
    reporter._send("RUNNING", None)
    assert not reporter.yielding()
    api.desired = "YIELD"
    reporter._send("RUNNING", None)
    assert reporter.yielding() and not reporter.stopping() and stopped == []
    reporter.close("YIELDED", None)
    assert api.taken[-1]["state"] == "YIELDED"


def test_a_checkpoint_is_told_at_once() -> None:
    api = _Api()
    told = threading.Event()

    class Listening(_Api):
        def call(
            self, method: str, path: str, body: Mapping[str, Any] | None = None
        ) -> dict[str, Any]:
            api.call(method, path, body)
            told.set()
            return {"desired": "RUN"}

    reporter = Reporter(
        Listening(), "r", 3, 600.0, 0, ManualClock(RealTime(0)), pytest.fail, pytest.fail
    )
    reporter._report_seconds = 600.0
    reporter.start()
    reporter.step(1, 1.0, 0.5, 0.1, 0.01)
    assert not api.taken
    reporter.checkpoint(1, "c", "0" * 64, is_best=False)
    assert told.wait(10) and api.taken[0]["checkpoints"] and api.taken[0]["metrics"]
    reporter.close("SUCCEEDED", None)


def test_a_damaged_checkpoint_shows_in_where_the_run_went_on() -> None:
    api = _Api()
    reporter = _reporter(api, [], resume_step=100)
    reporter.step(81, 1.0, 0.5, 0.1, 0.01)
    reporter.step(82, 1.0, 0.5, 0.1, 0.01)
    reporter.close("SUCCEEDED", None)
    assert api.taken[0]["summary"] == {"resumedStep": 80}


def test_a_number_that_is_none_ends_the_run_with_its_name() -> None:
    with pytest.raises(PodyardError, match="step 1: loss is not a finite number"):
        _reporter(_Api(), []).step(1, float("nan"), 0.5, 0.1, 0.01)


def test_each_report_says_what_the_process_has_taken_of_its_machine() -> None:
    api = _Api()
    clock = ManualClock(RealTime(0))
    reporter = Reporter(api, "r", 3, 15.0, 0, clock, pytest.fail, pytest.fail)
    reporter.log("x")
    clock.advance(10)
    before = time.process_time()
    while time.process_time() < before + 0.02:
        pass
    reporter.close("SUCCEEDED", None)
    first, last = (body["used"] for body in api.taken)
    assert 0 < first["cpuMicroseconds"] <= last["cpuMicroseconds"] < 3600 * 10**6
    assert 10 * 4096 < last["memoryKibSeconds"] == first["memoryKibSeconds"] < 10 * 2**24


def test_training_is_told_in_the_log_every_ten_seconds() -> None:
    api, clock = _Api(), ManualClock(RealTime(0))
    reporter = Reporter(api, "r", 3, 1e6, 0, clock, pytest.fail, lambda: None)
    reporter.tells_training = True
    for step in range(1, 26):
        reporter.step(step, 1.0 / step, 0.5, 0.1, 0.01)
        clock.advance(1.0)
    reporter.on_evaluation(25, {"val_loss": 0.25, "val_gap": float("inf")})
    reporter.checkpoint(25, "step-25", "0" * 64, is_best=True)
    reporter.close("SUCCEEDED", None)
    text = "".join(log["text"] for log in api.logs())
    lines = [line.split(" ", 1)[1] for line in text.splitlines()]
    assert lines == [
        "step 1: loss 1, accuracy 0.5",
        "step 11: loss 0.09091, accuracy 0.5",
        "step 21: loss 0.04762, accuracy 0.5",
        "evaluation at step 25: val_loss 0.25",
        "checkpoint at step 25 (the best so far): step-25",
    ]
