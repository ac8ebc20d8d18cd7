"""Preemption with notice, priorities and the queue's view: the real loop and use cases, on both
databases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.control.compute import hosts, nodes, queue_view
from podyard.control.jobs import gangs, jobs, preemption
from podyard.db.compute import nodes as node_rows
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.compute import nodes as nodes_table
from podyard.db.views import fleet as fleet_rows
from podyard.domain.job import Job, JobRequest
from podyard.domain.node import UsageClass
from podyard.domain.plan import Preempt
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.slice import PREEMPTIBLE_LIFE_SECONDS, SliceRecord
from podyard.scheduler.jobs import YIELD_SECONDS_MAX
from tests.builders import PROJECT, ZONE, Play, node_spec, request

SPOT, ON_DEMAND = UsageClass.SPOT, UsageClass.ON_DEMAND
NOTICE = 30.0
# A pod with room for four v2-8 or one v2-32, one with room for eight chips of v5e.
FLEET = """
zones:
  us-central1-a: {v2: {shape: 4x4}, v5e: {shape: 2x4}}
timings: {create_seconds: 10, preemption_notice_seconds: 30}
shares: {demo: 2}
"""


class Scheduling(Play):
    """With an agent whose replicas report together."""

    def fill(
        self, usage: UsageClass = SPOT, kind: str = "v2-32", name: str = "old", **changes: Any
    ) -> None:
        assert self.create(name, kind, usage_class=usage, **changes).error_code is None

    def submit(self, job_id: str, node: Any, **fields: Any) -> None:
        asked = JobRequest(recipe="digits-cnn", steps=10, **fields)
        self.run(jobs.create, job_id, asked, node)
        self.turn()

    def job(self, job_id: str) -> Job:
        return self.ask(jobs.get, job_id)

    def outcomes(self, job_id: str) -> list[str | None]:
        return [attempt.outcome for attempt, _, _ in self.ask(jobs.attempts, job_id)]

    def report(self, state: str = "RUNNING", **fields: Any) -> list[str]:
        """All live replicas report; what they are told."""
        return [self.say(replica, state, **fields) for replica in self.live()]

    def exit_all(self) -> None:
        self.exit(self.live())
        self.turn()

    def slices(self) -> dict[str, SliceRecord]:
        """By node id."""
        found = self.database.read(lambda uow: fleet_rows.load(uow, self.fleet)).slices
        rows = self.database.read(lambda uow: uow.all(select(nodes_table)))
        names = {row["node_key"]: row["node_id"] for row in rows}
        return {names[item.node_key]: item for item in found}

    def queue_rows(self, location: str | None = ZONE) -> list[queue_view.Waiting]:
        return self.database.read(
            lambda uow: queue_view.rows(uow, self.fleet, PLATFORM, PROJECT, location)
        )


@pytest.fixture
def yard(database: Database, clock: ManualClock) -> Scheduling:
    return Scheduling(database, clock, FLEET)


def _points(first: int, last: int) -> list[dict[str, Any]]:
    figures = {"loss": 1.0, "accuracy": 0.5, "wall_seconds": 0.1, "modelled_seconds": 2.0}
    return [{"step": step, **figures} for step in range(first, last + 1)]


def _saved(step: int) -> dict[str, Any]:
    return {"step": step, "name": f"c{step}", "sha256": "0" * 64, "best": False}


def _reclaimed(yard: Scheduling, name: str) -> bool:
    """Return what the metadata server says as `instance/preempted`."""

    def read(uow: UnitOfWork) -> bool:
        node = node_rows.find(uow, PROJECT, ZONE, name)
        assert node is not None
        return hosts.facts(uow, node).reclaimed

    return yard.database.read(read)


def test_an_on_demand_node_takes_the_chips_of_a_spot_node_after_its_notice(
    yard: Scheduling,
) -> None:
    yard.fill()
    begun = yard.run(nodes.create, "new", node_spec())
    yard.turn()
    assert yard.states() == {"old": "READY", "new": "CREATING"}
    assert not yard.operation(begun).is_done
    assert "1 slice taken back for it" in yard.node("new").state_reason
    assert (_reclaimed(yard, "old"), _reclaimed(yard, "new")) == (True, False)
    yard.turn(NOTICE - 1)
    assert yard.states()["old"] == "READY"
    yard.turn(1)
    assert yard.states() == {"old": "PREEMPTED", "new": "CREATING"}
    assert _reclaimed(yard, "old")
    assert yard.node("old").state_reason == "preempted: its chips are needed for another request"
    yard.turn(10)
    assert yard.states() == {"old": "PREEMPTED", "new": "READY"}
    assert yard.operation(begun).is_done
    assert [row["node_id"] for row in yard.held()] == ["new"]


def test_without_notice_the_node_is_taken_at_once(database: Database, clock: ManualClock) -> None:
    yard = Scheduling(database, clock, FLEET.replace(", preemption_notice_seconds: 30", ""))
    yard.fill()
    assert yard.create("new").error_code is None
    assert yard.states() == {"old": "PREEMPTED", "new": "READY"}


def test_on_demand_nodes_stay_and_the_newcomer_has_googles_stockout(yard: Scheduling) -> None:
    yard.fill(ON_DEMAND)
    failed = yard.create("new")
    assert failed.error_message is not None
    assert failed.error_message.startswith("There is no more capacity in the zone")
    assert yard.states() == {"old": "READY"}


def test_a_victim_that_is_deleted_meanwhile_is_fine(yard: Scheduling) -> None:
    yard.fill()
    yard.run(nodes.create, "new", node_spec())
    yard.turn(1)
    yard.run(nodes.delete, "old")
    yard.turn()
    yard.turn(10)
    assert yard.states() == {"new": "READY"}
    yard.turn(NOTICE)
    assert yard.states() == {"new": "READY"}


def test_a_request_that_is_deleted_lets_the_notice_run_out(yard: Scheduling) -> None:
    yard.fill(kind="v2-8")
    yard.run(nodes.create, "new", node_spec("v2-32"))
    yard.turn()
    yard.run(nodes.delete, "new")
    yard.turn()
    assert yard.slices()["old"].reclaim is not None
    yard.turn(NOTICE)
    assert yard.states() == {"old": "PREEMPTED"}


def test_a_notice_does_not_follow_a_node_to_other_chips(yard: Scheduling) -> None:
    yard.fill(kind="v2-8")
    row = yard.slices()["old"]
    notice = Preempt(row.node_key, row.node_version, "test")
    yard.database.run(lambda uow: preemption.apply(uow, yard.fleet, notice))
    yard.run(nodes.stop, "old")
    yard.turn()
    yard.run(nodes.start, "old")
    yard.turn()
    assert yard.states() == {"old": "READY"}
    assert yard.slices()["old"].reclaim is None
    yard.turn(NOTICE)
    assert yard.states() == {"old": "READY"}


def test_a_stale_preemption_and_a_second_one_do_nothing(yard: Scheduling) -> None:
    yard.fill(kind="v2-8")
    row = yard.slices()["old"]
    for version in (row.node_version + 1, row.node_version, row.node_version):
        notice = Preempt(row.node_key, version, "test")
        yard.database.run(lambda uow, notice=notice: preemption.apply(uow, yard.fleet, notice))
        given = yard.slices()["old"].reclaim
        assert (given is None) == (version != row.node_version)
        yard.clock.advance(1)
    assert given is not None
    assert given.seconds_since(row.placed) < NOTICE + 15


def test_jobs_of_a_victim_save_and_leave_and_none_starts_there_any_more(yard: Scheduling) -> None:
    yard.register()
    yard.fill()
    yard.submit("train", "old")
    assert yard.report(points=_points(1, 3)) == ["RUN"] * 4
    yard.run(nodes.create, "new", node_spec())
    yard.turn()
    assert yard.report() == ["YIELD"] * 4
    assert yard.job("train").state_reason.startswith("node old is taken back at ")
    yard.report("YIELDED", checkpoints=[_saved(3)])
    assert yard.job("train").state == "RECOVERING"
    yard.exit_all()
    assert yard.outcomes("train") == ["PREEMPTED"]
    job = yard.job("train")
    assert (job.preemptions, job.failures) == (1, 0)
    assert job.state_reason.startswith("node old is taken back at ")
    yard.turn(NOTICE)
    yard.turn(10)
    assert yard.states() == {"old": "PREEMPTED", "new": "READY"}
    assert yard.job("train").state == "FAILED"  # the user's own node will not be there again
    assert yard.job("train").error_message is not None


def test_chips_come_back_only_when_the_last_process_is_gone(yard: Scheduling) -> None:
    yard.register()
    yard.fill()
    yard.submit("train", "old")
    yard.report()
    yard.run(nodes.create, "new", node_spec())
    yard.turn()
    yard.turn(NOTICE)
    assert yard.states() == {"old": "PREEMPTED", "new": "CREATING"}
    assert [row["node_id"] for row in yard.held()] == ["old"]
    assert not [row for row in yard.queue_rows() if "no box" in row.reason]
    yard.exit_all()
    yard.turn(1)
    yard.turn(10)
    assert yard.states()["new"] == "READY"


def test_a_job_waits_for_its_own_node_and_gets_another_when_that_is_taken(yard: Scheduling) -> None:
    yard.register()
    yard.fill(ON_DEMAND)
    yard.submit("train", node_spec("v2-8", usage_class=SPOT))
    job = yard.job("train")
    assert job.state == "QUEUED"
    assert job.state_reason.startswith("node train is CREATING: v2-8 needs a free box of 2x2 chips")
    yard.run(nodes.delete, "old")
    yard.turn()
    yard.turn(10)
    assert yard.job("train").state == "PREPARING"
    yard.report(points=_points(1, 4), checkpoints=[_saved(4)])
    yard.run(nodes.create, "big", node_spec("v2-32"))
    yard.turn()
    yard.report("YIELDED", points=_points(5, 6), checkpoints=[_saved(6)])
    yard.exit_all()
    yard.turn(NOTICE)
    yard.turn(10)
    assert yard.states()["big"] == "READY"
    assert yard.job("train").state == "RECOVERING"
    assert [row.kind for row in yard.queue_rows()] == ["job"]
    yard.run(nodes.delete, "big")
    yard.turn()
    yard.turn(10)
    job = yard.job("train")
    assert (job.state, job.steps_done, job.attempt) == ("PREPARING", 6, 2)


def test_a_higher_job_takes_the_node_of_a_lower_one_of_its_project(yard: Scheduling) -> None:
    yard.register()
    yard.submit("low", node_spec("v2-32"), priority=-5)
    yard.turn(10)
    yard.report()
    assert yard.job("low").state == "RUNNING"
    yard.submit("same", node_spec("v2-8"), priority=-5)
    assert yard.report() == ["RUN"] * 4
    yard.submit("high", node_spec("v2-8"), priority=7)
    assert yard.report("YIELDED", checkpoints=[_saved(2)]) == ["YIELD"] * 3 + ["STOP"]
    yard.exit_all()
    yard.turn(NOTICE)
    yard.turn(10)
    assert yard.job("high").state == "PREPARING"
    assert yard.outcomes("low") == ["PREEMPTED"]
    # What the higher one leaves goes to the next one that fits: the lower one of the same size, not
    # the big one.
    assert yard.job("same").state == "PREPARING"
    assert [row.name.rsplit("/", 1)[1] for row in yard.queue_rows()] == ["low"]


def test_on_one_node_the_higher_job_goes_first_and_the_lower_one_resumes(yard: Scheduling) -> None:
    yard.register()
    yard.fill(ON_DEMAND, "v2-8", "shared")
    yard.submit("low", "shared")
    yard.report(points=_points(1, 3))
    yard.submit("equal", "shared")
    assert yard.report() == ["RUN"]
    yard.submit("high", "shared", priority=1)
    assert yard.job("high").state_reason.endswith(
        "busy with job low, which has a lower priority and makes room"
    )
    assert [row.name.rsplit("/", 1)[1] for row in yard.queue_rows()] == ["high", "equal"]
    assert yard.report("YIELDED", checkpoints=[_saved(3)]) == ["STOP"]
    assert yard.job("low").state == "RECOVERING"
    yard.exit_all()
    assert [yard.job(name).state for name in ("high", "low", "equal")] == [
        "PREPARING",
        "RECOVERING",
        "QUEUED",
    ]
    assert yard.outcomes("low") == ["PREEMPTED"]
    yard.report()
    yard.report("SUCCEEDED")
    yard.exit_all()
    # The one that had begun goes on before those of its priority that have not.
    assert [yard.job(name).state for name in ("low", "equal")] == ["PREPARING", "QUEUED"]
    assert (yard.job("low").steps_done, yard.job("low").preemptions) == (3, 1)


def test_a_gang_that_does_not_yield_to_a_higher_job_is_ended(yard: Scheduling) -> None:
    yard.register()
    yard.fill(ON_DEMAND, "v2-8", "shared")
    yard.submit("low", "shared")
    yard.report()
    yard.submit("high", "shared", priority=1)
    yard.clock.advance(YIELD_SECONDS_MAX + 1)
    yard.report()
    yard.database.run(gangs.resize)
    assert yard.job("low").state == "RECOVERING"
    yard.exit_all()
    assert yard.outcomes("low") == ["PREEMPTED"]
    assert yard.job("high").state == "PREPARING"


def test_a_job_is_not_preempted_for_one_that_has_no_room_anyway(yard: Scheduling) -> None:
    yard.register(2)
    yard.fill(ON_DEMAND, "v2-32", "shared")
    yard.fill(ON_DEMAND, "v5litepod-1", "other")
    yard.submit("low", "shared", replica_processes=1)
    yard.submit("other-job", "other")
    yard.report()
    yard.submit("high", "shared", replica_processes=2, priority=1)
    assert (
        yard.job("high").state_reason
        == "2 replicas are needed at once and the live agents have room for 1"
    )
    assert yard.report() == ["RUN", "RUN"]
    yard.ask(jobs.cancel, "other-job")
    yard.exit([row for row in yard.live() if row.desired == "STOP"])
    yard.turn()
    assert yard.report() == ["YIELD"]


def test_a_priority_out_of_range_is_refused(yard: Scheduling) -> None:
    yard.register()
    for priority in (-1001, 1001):
        with pytest.raises(PodyardError, match="priority is"):
            yard.submit("j", node_spec("v2-8"), priority=priority)


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("5", 5),
        ("-1000", -1000),
        ("1000", 1000),
        ("1001", 0),
        ("high", 0),
        ("", 0),
        ("1.5", 0),
        ("9" * 5000, 0),
    ],
)
def test_the_priority_of_a_node_is_its_label_and_bad_text_is_none(text: str, priority: int) -> None:
    assert fleet_rows.priority_of({"podyard-priority": text}) == priority


def test_a_label_moves_a_request_up_the_queue(yard: Scheduling) -> None:
    yard.fill(ON_DEMAND)
    yard.queue(request("first", kind="v2-32"), "first")
    urgent = request("urgent", kind="v2-32")
    spec = node_spec("v2-32", labels={"podyard-priority": "3"})
    yard.queue(
        type(urgent)(
            nodes=(type(urgent.nodes[0])("urgent", spec, 0, 1),), usage_class=urgent.usage_class
        ),
        "urgent",
    )
    yard.turn()
    rows = yard.queue_rows()
    assert [(row.name.rsplit("/", 1)[1], row.position, row.priority) for row in rows] == [
        ("urgent", 1, 3),
        ("first", 2, 0),
    ]
    yard.run(nodes.delete, "old")
    yard.turn()
    yard.turn(10)
    assert yard.states() == {"urgent": "READY"}


def test_the_view_says_when_and_why_and_names_only_the_project_that_asks(yard: Scheduling) -> None:
    yard.fill(ON_DEMAND, max_run_seconds=3600.0)
    ends = yard.node("old").termination
    yard.queue(request("n", kind="v2-32"), "mine")
    yard.turn()
    (row,) = yard.queue_rows(None)
    assert (row.kind, row.position, row.accelerator_type, row.predicted_start) == (
        "queuedResource",
        1,
        "v2-32",
        ends,
    )
    assert ends is not None
    assert row.reason.endswith(f"16 chips are held for it from {ends.rfc3339()} on")
    stranger = Principal("x@example.com", {"other": frozenset({"owner"})})
    others = yard.database.read(
        lambda uow: queue_view.rows(uow, yard.fleet, stranger, "other", ZONE)
    )
    assert others == []
    with pytest.raises(PodyardError):
        yard.database.read(lambda uow: queue_view.rows(uow, yard.fleet, stranger, PROJECT, ZONE))
    with pytest.raises(PodyardError, match="is not found"):
        yard.queue_rows("us-central1-b")


def test_the_snapshot_knows_when_slices_end_and_what_taking_them_costs(yard: Scheduling) -> None:
    yard.register()
    yard.fill(SPOT, "v2-8", "open")
    yard.fill(UsageClass.PREEMPTIBLE, "v2-8", "daily")
    yard.run(nodes.create, "bounded", node_spec(usage_class=SPOT, max_run_seconds=100.0))
    yard.turn()
    found = yard.slices()
    assert found["open"].ends is None
    assert found["daily"].ends == yard.node("daily").created.plus_seconds(PREEMPTIBLE_LIFE_SECONDS)
    assert found["bounded"].ends == found["bounded"].placed.plus_seconds(10 + 100)
    assert {item.project for item in found.values()} == {PROJECT}
    yard.turn(10)
    assert yard.slices()["bounded"].ends == yard.node("bounded").termination
    yard.submit("train", "open")
    yard.report(points=_points(1, 3))
    assert yard.slices()["open"].lost_work_seconds == 0.0  # nobody asks
    yard.queue(request("q", kind="v2-32"), "firm")
    assert yard.slices()["open"].lost_work_seconds == 6.0
    yard.report(points=_points(4, 5), checkpoints=[_saved(4)])
    assert yard.slices()["open"].lost_work_seconds == 2.0
    yard.run(nodes.delete, "open")
    assert yard.slices()["open"].ends == yard.slices()["open"].placed
    assert yard.database.read(lambda uow: fleet_rows.load(uow, yard.fleet)).shares == {"demo": 2.0}
