"""Jobs of `execution: simulated`: states, attempts, checkpoints and the bill by modelled time on
the platform clock."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from sqlalchemy import select

from podyard.base.clock import NANOS_PER_SECOND, ClockMode, ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import usages
from podyard.control.checks import fsck
from podyard.control.compute import nodes
from podyard.control.jobs import jobs
from podyard.db.compute import nodes as node_rows
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.domain.job import Elastic, Job, JobRequest, JobState
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.principal import PLATFORM
from podyard.pricing.current_card import default_rate_card
from tests.builders import PROJECT, ZONE, Play, node_spec
from tests.waiting import patient

DAY = 86_400
LARGE = """
zones:
  us-central1-a: {v4: {shape: 16x16x16}, v2: {shape: 4x4}}
timings: {create_seconds: 10, restart_seconds: 5, maintenance_seconds: 60}
"""
V4_4096 = NodeSpec("v4-4096", "8x16x16", "tpu-ubuntu2204-base", UsageClass.ON_DEMAND)
SIMULATED: dict[str, Any] = {
    "recipe": "digits-cnn",
    "execution": "simulated",
    "step_seconds": 0.5,
    "steps": 1000,
}


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    play = Play(database, clock)
    assert play.create("n").error_code is None
    return play


def _submit(play: Play, node: Any = "n", name: str = "j", **changes: Any) -> None:
    play.run(jobs.create, name, JobRequest(**{**SIMULATED, **changes}), node)
    play.turn()


def _job(play: Play, name: str = "j") -> Job:
    return play.ask(jobs.get, name)


def test_a_job_takes_its_modelled_time_and_needs_no_agent(play: Play) -> None:
    _submit(play)
    job = _job(play)
    assert (job.state, job.steps_done) == (JobState.RUNNING, 0)
    play.turn(200)
    assert (_job(play).state, _job(play).steps_done) == (JobState.RUNNING, 400)
    assert [item.step for item in play.ask(jobs.checkpoints, "j")] == [400, 300, 200, 100]
    play.turn(299)
    assert _job(play).state is JobState.RUNNING
    assert (
        list(play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card()))) == []
    )
    play.turn(1)
    job = _job(play)
    assert (job.state, job.steps_done, job.modelled_seconds) == (JobState.SUCCEEDED, 1000, 500.0)
    assert job.started and job.ended and job.ended.seconds_since(job.started) == 500.0
    assert [item.step for item in play.ask(jobs.checkpoints, "j")] == [1000, 900, 800, 700, 600]
    assert "loss" not in job.latest
    assert play.history("replica") == []
    assert (
        list(play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card()))) == []
    )


def test_a_lost_node_costs_the_steps_since_the_last_checkpoint(
    database: Database, clock: ManualClock
) -> None:
    play = Play(database, clock)
    _submit(play, node_spec(usage_class=UsageClass.SPOT))
    play.turn(10)
    play.turn(180)
    assert _job(play).steps_done == 300
    _preempt(play, "j")
    job = _job(play)
    assert (job.state, job.steps_done, job.preemptions) == (JobState.RECOVERING, 360, 1)
    for _ in range(3):
        play.turn(1)
    play.turn(10)
    job = _job(play)
    assert (job.state, job.attempt, job.steps_done) == (JobState.RUNNING, 2, 300)
    play.turn(350)
    assert (_job(play).state, _job(play).steps_done) == (JobState.SUCCEEDED, 1000)
    tries = [(one.resume_step, one.outcome) for one, _, _ in play.ask(jobs.attempts, "j")]
    assert tries == [(0, "PREEMPTED"), (300, "SUCCEEDED")]
    play.turn()
    assert play.states() == {}
    assert (
        list(play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card()))) == []
    )


def test_it_is_cancelled_at_once_and_makes_way_for_a_higher_priority_with_a_checkpoint(
    play: Play,
) -> None:
    _submit(play)
    play.turn(30)
    _submit(play, name="first", priority=5, steps=10)
    job = _job(play)
    assert (job.state, job.steps_done) == (JobState.RECOVERING, 60)
    assert [item.step for item in play.ask(jobs.checkpoints, "j")] == [60]
    assert _job(play, "first").state is JobState.RUNNING
    play.turn(5)
    play.turn()
    assert (_job(play, "first").state, _job(play).state) == (JobState.SUCCEEDED, JobState.RUNNING)
    play.ask(jobs.cancel, "j")
    assert _job(play).state is JobState.CANCELLED


def test_a_simulated_job_that_has_used_up_its_time_saves_and_fails(play: Play) -> None:
    _submit(play, steps=1000, time_limit_seconds=30)
    play.turn(5)
    play.turn(40)
    job = _job(play)
    assert (job.state, job.error_code) == (JobState.FAILED, Code.DEADLINE_EXCEEDED)
    assert play.ask(jobs.checkpoints, "j")[0].step == job.steps_done > 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"step_seconds": None}, "requires stepSeconds"),
        ({"step_seconds": float("nan")}, "stepSeconds is nan: it must be from 1e-06 to 86400"),
        ({"step_seconds": 0.0}, "stepSeconds is 0.0"),
        ({"execution": "real"}, "stepSeconds can only be set with execution simulated"),
        ({"elastic": Elastic(1, "keep", "keep")}, "elastic cannot be set with execution simulated"),
        ({"replica_processes": 1}, "replicaProcesses cannot be set"),
        ({"execution": "imagined", "step_seconds": None}, "unknown execution 'imagined'"),
    ],
)
def test_what_a_simulated_job_cannot_have_is_refused(
    play: Play, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(PodyardError, match=text):
        _submit(play, **changes)


def test_no_job_starts_from_a_checkpoint_without_parameters(play: Play) -> None:
    _submit(play, steps=10)
    play.turn(5)
    with pytest.raises(PodyardError, match="job j was simulated"):
        play.run(jobs.create, "e", JobRequest(mode="evaluate", start_from=("j", None)), "n")


def test_90_days_on_v4_4096_with_20_preemptions(database: Database, clock: ManualClock) -> None:
    """In well under a minute, and the bill is what the job's nodes were READY."""
    began = time.monotonic()
    play = Play(database, clock, LARGE)
    database.run(_as_virtual)
    start = database.read(lambda uow: uow.now)
    steps = int(90 * DAY / 0.9)
    spec = dataclasses.replace(V4_4096, usage_class=UsageClass.SPOT)
    play.run(
        jobs.create,
        "large",
        JobRequest(
            recipe="podyard:transformer-lm", execution="simulated", step_seconds=0.9, steps=steps,
            global_batch=4096,
            checkpoint_every_steps=1000,
        ),
        spec,
    )  # fmt: skip
    for number in range(1, 21):
        _advance(play, start.plus_seconds(number * 4.2 * DAY + 137.5))
        _preempt(play, "large")
    _advance(play, start.plus_seconds(95 * DAY))
    job = _job(play, "large")
    assert (job.state, job.steps_done, job.preemptions, job.attempt) == (
        JobState.SUCCEEDED,
        steps,
        20,
        21,
    )
    assert play.states() == {}
    assert (
        list(play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card()))) == []
    )
    lost = job.ended.seconds_since(job.started) - 90 * DAY  # type: ignore[union-attr]
    assert 20 * 10 < lost < 20 * (1000 * 0.9 + 11)
    assert _billed_seconds(play) == _ready_seconds(play) > 90 * DAY
    assert time.monotonic() - began < patient(60)


def _billed_seconds(play: Play) -> int:
    used = play.database.read(lambda uow: usages.usage(uow, default_rate_card(), PLATFORM, PROJECT))
    return sum(node.seconds for node in used.nodes)


def _ready_seconds(play: Play) -> int:
    """By the histories of the nodes; each second that is begun counts."""
    rows = play.database.read(
        lambda uow: uow.all(select(state_changes).order_by(state_changes.c.seq))
    )
    total, since = 0, {}
    for row in (row for row in rows if row["machine"] == "node"):
        if row["from_state"] == "READY":
            total += (
                -(-row["at"].nanos // NANOS_PER_SECOND)
                - since.pop(row["resource_key"]).nanos // NANOS_PER_SECOND
            )
        if row["to_state"] == "READY":
            since[row["resource_key"]] = row["at"]
    assert not since
    return total


def _as_virtual(uow: UnitOfWork) -> None:
    platform_clock.set_up(uow, ClockMode.VIRTUAL)
    platform_clock.write(uow, dataclasses.replace(uow.clock, rate_millionths=0))


def _advance(play: Play, target: PlatformTime) -> None:
    play.database.run(
        lambda uow: platform_clock.write(uow, dataclasses.replace(uow.clock, target=target))
    )
    for _ in range(1000):
        play.clock.advance(0.5)
        play.loop.round()
        if play.database.read(lambda uow: uow.clock.target) is None:
            return
    raise AssertionError("the clock does not come to its target")


def _preempt(play: Play, name: str) -> None:
    def body(uow: UnitOfWork) -> None:
        node = node_rows.find(uow, PROJECT, ZONE, name)
        assert node is not None
        nodes.take_back(uow, node, "preempt", "preempted by the test")

    play.database.run(body)
