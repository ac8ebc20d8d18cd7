"""An elastic job's life and what its replicas tell, by use cases alone: the same rows on both databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import select

from podyard.base.clock import ManualClock, PlatformTime
from podyard.control import access, agents, gangs, jobs
from podyard.db.tables_jobs import replicas
from podyard.db.transition import NODES, born, move
from podyard.db.unit_of_work import Database, UnitOfWork
from podyard.domain.fleet import default_fleet
from podyard.domain.job import Elastic, Job, JobRequest, TrainingSettings
from podyard.domain.node import node_name
from podyard.domain.principal import PLATFORM, Principal

PROJECT, ZONE = "demo", "europe-west4-a"
AGENT = Principal("agent", {}, agent_id="local")
NODE = {
    "node_key": "n", "number": 1, "project": PROJECT, "zone": ZONE, "node_id": "pod",
    "live_name": node_name(PROJECT, ZONE, "pod"),
    "accelerator_type": "v3-32", "topology": "4x4", "usage_class": "on-demand", "runtime_version": "x", "spec": {},
    "created": PlatformTime(0), "ready_since": None, "state_reason": "", "wait_reason": "", "pending_operation": None,
    "host_count": 4, "first_address": 0, "job_key": None,
}  # fmt: skip


class Play:
    """The agent `local` and its replicas, who say what they are told to say."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database = database
        self.clock = clock
        self.fence = 0
        database.run(lambda uow: access.bootstrap(uow, "owner", "agent", "local"))
        database.run(_ready_node)

    def register(self, replicas_max: int) -> None:
        self.fence = self.database.run(
            lambda uow: agents.register(uow, AGENT, "local", replicas_max, 4, "127.0.0.1", 1)
        )

    def submit(self, **fields: Any) -> None:
        asked = JobRequest(recipe="digits-cnn", steps=10, **fields)
        self.database.run(lambda uow: jobs.create(uow, default_fleet(), PLATFORM, PROJECT, ZONE, "j", asked, "pod"))

    def job(self) -> Job:
        return self.database.read(lambda uow: jobs.get(uow, PLATFORM, PROJECT, ZONE, "j"))

    def attempts(self) -> list[tuple[int, int | None, str | None]]:
        found = self.database.read(lambda uow: jobs.attempts(uow, PLATFORM, PROJECT, ZONE, "j"))
        return [(row["hosts"], row["global_batch"], row["outcome"]) for row in found]

    def gang(self) -> list[Mapping[str, Any]]:
        live = select(replicas).where(replicas.c.state != "EXITED").order_by(replicas.c.rank)
        return self.database.read(lambda uow: uow.all(live))

    def report(self, replica: Mapping[str, Any], state: str = "RUNNING", **fields: Any) -> str:
        said = {"error": None, "points": [], "evaluations": [], "checkpoints": [], "pruned": [], "lines": []}
        progress = agents.Progress(**{"fence": replica["fence"], "state": state, "summary": {}, **said, **fields})
        caller = Principal("replica", {}, attempt_id=replica["attempt_id"])
        return self.database.run(lambda uow: agents.report(uow, caller, replica["replica_id"], progress))

    def exit_all(self) -> None:
        gone = [agents.ReplicaReport(r["replica_id"], r["fence"], "EXITED", "gone") for r in self.gang()]
        self.database.run(lambda uow: agents.sync(uow, AGENT, "local", self.fence, gone))

    def grow(self) -> None:
        """The loop's look, after the pause, with an agent that lives."""
        self.clock.advance(gangs.RESIZE_PAUSE_SECONDS + 1)
        self.database.run(lambda uow: agents.sync(uow, AGENT, "local", self.fence, []))
        self.database.run(gangs.grow)


def _ready_node(uow: UnitOfWork) -> None:
    born(uow, NODES, NODE, reason="asked")
    move(uow, NODES, {**NODE, "state": "CREATING", "version": 1}, "created", reason="ready")


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


def _saved(step: int, best: bool = False) -> dict[str, Any]:
    return {"step": step, "name": f"c{step}", "sha256": "0" * 64, "best": best}


def test_an_elastic_job_shrinks_yields_and_grows_back(play: Play) -> None:
    play.register(2)
    play.submit(elastic=Elastic(1, "scale", "linear"))
    assert play.database.run(gangs.start_waiting) == 1
    assert play.attempts() == [(2, 64, None)]
    first, second = play.gang()
    assert [play.report(replica) for replica in (first, second)] == ["RUN", "RUN"]
    play.register(4)
    play.grow()
    assert play.report(first, "YIELDED", checkpoints=[_saved(3)]) == "YIELD"
    assert play.report(second, "YIELDED") == "STOP"
    assert play.job().state == "RECOVERING"
    play.exit_all()
    assert play.database.run(gangs.start_waiting) == 1
    assert play.attempts() == [(2, 64, "RESIZED"), (4, 128, None)]
    job = play.job()
    assert (job.failures, job.preemptions, job.steps_done) == (0, 0, 3)


def test_a_gang_is_ended_when_it_does_not_yield(play: Play) -> None:
    play.register(2)
    play.submit(elastic=Elastic(1, "keep", "keep"))
    play.database.run(gangs.start_waiting)
    for replica in play.gang():
        play.report(replica)
    play.register(4)
    play.grow()
    play.clock.advance(gangs.YIELD_SECONDS_MAX)
    play.database.run(gangs.grow)
    assert {replica["desired"] for replica in play.gang()} == {"YIELD"}
    play.clock.advance(0.1)
    play.database.run(gangs.grow)
    assert {replica["desired"] for replica in play.gang()} == {"STOP"}
    assert play.attempts() == [(2, 128, "RESIZED")]


def test_evaluations_best_and_pruned_checkpoints_are_kept_and_dropped(play: Play) -> None:
    play.register(4)
    play.submit(training=TrainingSettings(evaluate_every_steps=10))
    play.database.run(gangs.start_waiting)
    first, *_ = play.gang()
    points = [
        {"step": step, "loss": 1.0, "accuracy": 0.5, "wall_seconds": 0.1, "modelled_seconds": 0.5}
        for step in range(1, 9)
    ]
    saved = [_saved(2, True), _saved(4, True), _saved(6), _saved(8)]
    measured = [{"step": 4, "metrics": {"val_loss": 0.5}}, {"step": 8, "metrics": {"val_loss": 0.25}}]
    for _ in range(2):  # a report whose answer was lost comes again
        play.report(first, points=points, checkpoints=saved, evaluations=measured, pruned=[2])
    read = play.database.read
    found = read(lambda uow: jobs.checkpoints(uow, PLATFORM, PROJECT, ZONE, "j"))
    assert [(row["step"], row["best"]) for row in found] == [(8, False), (6, False), (4, True)]
    evaluations = read(lambda uow: jobs.evaluations(uow, PLATFORM, PROJECT, ZONE, "j"))
    assert [(row["step"], row["metrics"]) for row in evaluations] == [(4, {"val_loss": 0.5}), (8, {"val_loss": 0.25})]
    job = play.job()
    assert (job.latest["val_loss"], job.spec.training.evaluate_every_steps) == (0.25, 10)
