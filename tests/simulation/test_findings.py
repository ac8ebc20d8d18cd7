"""What simulations have found wrong, each as the few events or words that show it."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest

from podyard.control.compute import nodes
from podyard.db.store.timers import Timer
from podyard.simulation.run import simulate
from podyard.simulation.scenario import Scenario
from tests.simulation.mutant import ENDS_UNDER_A_JOB
from tests.unit.control.gang import Gang, submit
from tests.yard import open_yard


def test_a_clock_that_walks_does_not_look_for_hours_whether_a_process_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node's run time ends under a job in the middle of a walk; its processes end in real
    time."""
    fired: collections.Counter[str] = collections.Counter()
    on_timer = nodes.on_timer

    def counted(uow: Any, timer: Timer) -> bool:
        fired[timer.kind] += 1
        return on_timer(uow, timer)

    monkeypatch.setattr(nodes, "on_timer", counted)
    result = simulate(Scenario(days=1, nodes=6, events=ENDS_UNDER_A_JOB))
    assert not result.is_failure, result
    assert fired["node.expire"] == 1
    assert 2 <= fired["node.release"] <= 20


def test_a_gang_that_finishes_before_all_of_it_was_heard_of_succeeds(tmp_path: Path) -> None:
    """The first word of the last replica is that it is done."""
    numbers = {
        "metrics": {"loss": 1.0, "accuracy": 0.5},
        "wallSeconds": 0.1,
        "modelledSeconds": 0.5,
    }
    with open_yard(tmp_path) as yard:
        yard.create("n")
        gang = Gang(yard)
        path = submit(gang)
        (replica,) = gang.sync()
        answer = gang.report(
            replica, state="SUCCEEDED", metrics=[{"step": s, **numbers} for s in range(1, 11)]
        )
        assert answer.status_code == 200, answer.text
        gang.exit_all()
        assert yard.ok("GET", path)["state"] == "SUCCEEDED"
