"""Decisions about jobs against a slow, obvious oracle, and the rules that every plan keeps."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.clock import PlatformTime, RealTime
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.gang import allowed_sizes
from podyard.domain.job import Elastic, Job, JobSpec, JobState
from podyard.domain.job_plan import ActiveJob, JobPlan, JobSlice, JobSnapshot
from podyard.domain.node import NodeState
from podyard.domain.replica import Replica, ReplicaOutcome, ReplicaState
from podyard.scheduler import attempts as attempt_rules
from podyard.scheduler import jobs, places
from podyard.scheduler.places import Contender
from tests.property import job_oracle as oracle
from tests.property.job_oracle import OracleRun, OracleWorld, Work

T = TypeVar("T")
NOW = RealTime(1_000 * 10**9)
Turn = tuple[int, bool, int, int, str]
NODES = ("n0", "n1", "n2", "n3", "n4")
NODE_PAIRS = (("n0", "n1"), ("n1", "n2"), ("n4", "n0"))


class Choose(Protocol):
    def __call__(self, options: Sequence[T], /) -> T: ...


def make_world(choose: Choose) -> OracleWorld:
    """Up to seven jobs on five nodes, two agents that live, with few places, and one that does not.
    A node has one
    gang at most."""
    works: list[Work] = []
    for number in range(choose(range(8))):
        state = choose(
            ["QUEUED", "RECOVERING", "QUEUED", "RUNNING", "RUNNING", "PREPARING", "ENDING"]
        )
        least = choose([None, 1, 1, 2])
        work = Work(
            name=f"j{number}",
            project=choose(["p", "q"]),
            priority=choose([0, 0, 0, 1]),
            age=100 - number,
            state="RECOVERING" if state == "ENDING" else state,
            nodes=choose([(choose(NODES),), (choose(NODES),), choose(NODE_PAIRS)]),
            batch=choose([96, 128]),
            least=least,
            most=None if least is None else choose([None, None, 2]),
            rests=state == "RECOVERING" and choose([False, False, True]),
        )
        if state in ("RUNNING", "PREPARING", "ENDING"):
            if any(other.run is not None and other.shares_nodes_with(work) for other in works):
                continue
            work.run = OracleRun(
                state={"PREPARING": "STARTING"}.get(state, state),
                hosts=choose(dataclasses.replace(work, most=None).counts()),
                seconds=float(choose(range(31))),
                asked=state == "RUNNING" and choose(range(6)) == 0,
                outcome=choose(["RESIZED", "PREEMPTED", "FAILED"]) if state == "ENDING" else None,
            )
        works.append(work)
    agents: dict[str, list[str | None]] = {"a": [], "b": [], "dead": []}
    for work in works:
        for _ in range(work.run.hosts if work.run else 0):
            agents[choose(["a", "a", "b", "b", "dead"])].append(work.name)
    for name in ("a", "b"):
        agents[name] += [None] * choose([0, 0, 1, 2, 3, 5])
    dead = {"dead": agents.pop("dead")}
    blocked = {choose(NODES)} if choose(range(3)) == 0 else set()
    return OracleWorld(works, agents, dead, blocked, choose([{}, {"p": 4.0}, {"q": 4.0}]))


@st.composite
def worlds(draw: st.DrawFn) -> OracleWorld:
    return make_world(lambda options: draw(st.sampled_from(options)))


def snapshot_of(world: OracleWorld) -> JobSnapshot:
    free = {name: held.count(None) for name, held in world.agents.items()}
    return JobSnapshot(
        tuple(_active(world, work) for work in world.works), free, shares=world.shares
    )


def _active(world: OracleWorld, work: Work) -> ActiveJob:
    held = {
        name: places.count(work.name) for name, places in {**world.agents, **world.dead}.items()
    }
    slices = tuple(
        JobSlice(node, node, NodeState.STOPPED if node in world.blocked else NodeState.READY)
        for node in work.nodes
    )
    attempt = None if work.run is None else _attempt(work, work.run)
    places = {name: count for name, count in held.items() if count}
    retry_at = PlatformTime(5_000) if work.rests else None
    return ActiveJob(_job(work), attempt, places, slices, retry_at)


def _job(work: Work) -> Job:
    elastic = None if work.least is None else Elastic(work.least, "keep", "keep", work.most)
    spec = JobSpec(
        recipe="digits-cnn",
        arguments={},
        steps=10,
        global_batch=work.batch,
        seed=0,
        checkpoint_every_steps=5,
        elastic=elastic,
        priority=work.priority,
    )
    return Job(
        job_key=work.name,
        project=work.project,
        zone="z",
        job_id=work.name,
        state=JobState(work.state),
        spec=spec,
        node_key=work.nodes[0],
        node_id=work.nodes[0],
        accelerator_type="v3-32",
        topology="4x4",
        owns_node=False,
        created=PlatformTime(1_000 - work.age),
    )


def _attempt(work: Work, run: OracleRun) -> Attempt:
    return Attempt(
        attempt_id=work.name,
        job_key=work.name,
        attempt=1,
        state=AttemptState(run.state),
        resume_step=0,
        host_count=run.hosts,
        global_batch=None,
        outcome=None if run.outcome is None else AttemptOutcome(run.outcome),
        ring_key="",
        started=PlatformTime(0),
        started_real=NOW.plus_seconds(-run.seconds),
        yield_real=NOW if run.asked else None,
    )


def _starts_of(plan: JobPlan) -> oracle.Decided:
    return oracle.Decided(
        {start.job.job_key: list(start.agents) for start in plan.starts},
        {leave.attempt.attempt_id: str(leave.outcome) for leave in plan.yields},
        {job.job_key for job, _ in plan.reasons},
    )


def starts_as_the_oracle(world: OracleWorld) -> bool:
    return _starts_of(jobs.decide_starts(snapshot_of(world), NOW)) == oracle.starts(
        copy.deepcopy(world)
    )


def sizes_as_the_oracle(world: OracleWorld, only: str | None = None) -> bool:
    snapshot = snapshot_of(world)
    plan = jobs.decide_sizes(snapshot, NOW) if only is None else jobs.decide_size_of(snapshot, only)
    return [leave.attempt.attempt_id for leave in plan.yields] == list(
        oracle.sizes(copy.deepcopy(world), only)
    )


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(worlds())
def test_gangs_start_and_make_room_as_the_oracle_says(world: OracleWorld) -> None:
    assert starts_as_the_oracle(world)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(worlds(), st.sampled_from([None, "j0", "j1", "j2", "j3"]))
def test_gangs_change_their_size_as_the_oracle_says(world: OracleWorld, only: str | None) -> None:
    assert sizes_as_the_oracle(world, only)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_every_plan_keeps_the_rules(world: OracleWorld, chance: random.Random) -> None:
    snapshot = snapshot_of(world)
    plan = jobs.decide_starts(snapshot, NOW)
    mixed = dataclasses.replace(
        snapshot, jobs=tuple(chance.sample(snapshot.jobs, len(snapshot.jobs)))
    )
    assert jobs.decide_starts(mixed, NOW) == plan  # whatever the order of the rows
    by_key = {active.job.job_key: active for active in snapshot.jobs}
    used = [agent for start in plan.starts for agent in start.agents]
    assert all(used.count(agent) <= snapshot.free[agent] for agent in set(used))
    nodes = [one.node_key for start in plan.starts for one in by_key[start.job.job_key].slices]
    assert len(nodes) == len(set(nodes))
    running = (
        one.node_key
        for active in snapshot.jobs
        if active.attempt is not None
        for one in active.slices
    )
    assert not set(nodes) & set(running)
    for start in plan.starts:
        assert start.size in allowed_sizes(start.job.spec, start.job.kind)
        assert len(start.agents) == start.size.process_count
        assert {one.state for one in by_key[start.job.job_key].slices} == {NodeState.READY}
    waiting = {
        a.job.job_key
        for a in snapshot.jobs
        if a.attempt is None and a.job.state in ("QUEUED", "RECOVERING")
    }
    said = {job.job_key for job, _ in plan.reasons}
    assert said | {start.job.job_key for start in plan.starts} == waiting
    assert len(said) + len(plan.starts) == len(waiting)
    for leave in plan.yields:
        assert (leave.attempt.state, leave.attempt.yield_real) == ("RUNNING", None)
        if leave.outcome is AttemptOutcome.RESIZED:
            assert by_key[leave.attempt.job_key].job.spec.elastic is not None


def test_a_gang_that_does_not_leave_in_time_ends() -> None:
    work = Work(
        "j0", "p", 0, 1, "RUNNING", ("n0",), 96, 1, None, OracleRun("RUNNING", 4, 100.0, asked=True)
    )
    snapshot = snapshot_of(OracleWorld([work], {"a": [None] * 4}, {}, set(), {}))
    just = NOW.plus_seconds(jobs.YIELD_SECONDS_MAX)
    assert jobs.decide_sizes(snapshot, just) == JobPlan()
    (leave,) = jobs.decide_sizes(snapshot, just.plus_seconds(0.1)).ends
    assert (leave.attempt.attempt_id, leave.outcome) == ("j0", AttemptOutcome.RESIZED)


def _replica(rank: int, state: str, outcome: str | None) -> Replica:
    return Replica(
        replica_id=f"r{rank}",
        attempt_id="a",
        job_key="j",
        rank=rank,
        host_indices=[rank],
        agent_id="local",
        state=ReplicaState(state),
        fence=1,
        token="",
        outcome=None if outcome is None else ReplicaOutcome(outcome),
        reason=f"reason {rank}",
    )


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("state", ["STARTING", "RUNNING", "ENDING"])
@pytest.mark.parametrize("asked_for", [None, "PREEMPTED"])
def test_every_gang_is_settled_as_the_oracle_says(
    size: int, state: str, asked_for: str | None
) -> None:
    work = Work("j0", "p", 0, 1, "RUNNING", ("n0",), 96)
    yields = None if asked_for is None else AttemptOutcome(asked_for)
    attempt = dataclasses.replace(_attempt(work, OracleRun(state, 4, 0.0)), yield_outcome=yields)
    for said in oracle.gangs(size):
        gang = [_replica(rank, *one) for rank, one in enumerate(said)]
        found = attempt_rules.settle(attempt, gang)
        assert (found.runs, found.outcome, found.is_over) == oracle.settled(
            state, asked_for, said
        ), said
        assert (found.blamed is not None) == (found.outcome == "FAILED")


# Rules that are wrong on purpose: each is caught by the comparison with the oracle that the right
# ones pass.


@functools.cache
def cases() -> tuple[OracleWorld, ...]:
    return tuple(make_world(random.Random(seed).choice) for seed in range(3000))


def is_caught() -> bool:
    return not all(starts_as_the_oracle(world) and sizes_as_the_oracle(world) for world in cases())


@pytest.mark.slow
def test_the_right_rules_are_not_caught() -> None:
    assert not is_caught()


def _without_priority(job: Job, turn: Callable[[Job], Turn] = jobs.turn) -> tuple[object, ...]:
    return turn(job)[1:]


def _without_begun(job: Job, turn: Callable[[Job], Turn] = jobs.turn) -> tuple[object, ...]:
    first, _, *rest = turn(job)
    return (first, *rest)


def _alone(
    job: Contender, _waiting: object, free: int, count_for: Any = places.count_for
) -> int | None:
    count: int | None = count_for(job, [], free)
    return count


def _whole_or_none(job: Contender, _waiting: object, free: int) -> int | None:
    return job.counts[0] if job.counts[0] <= free else None


def _equal_shares(*given: Any, who_shrinks: Any = places.who_shrinks) -> Any:
    return who_shrinks(*given[:-1], {})


def _younger_first(one: Contender, other: Contender) -> bool:
    return one.created > other.created


def _on_nodes_of_all(by_node: Any, active: ActiveJob, on_nodes: Any = jobs._on_nodes) -> Any:
    awake = {
        key: [dataclasses.replace(one, retry_at=None) for one in found]
        for key, found in by_node.items()
    }
    return on_nodes(awake, active)


def _by_first_node(snapshot: JobSnapshot, by_node: Any = jobs._by_node) -> Any:
    first = (dataclasses.replace(active, slices=active.slices[:1]) for active in snapshot.jobs)
    found = by_node(dataclasses.replace(snapshot, jobs=tuple(first)))
    return {key: found.get(key, []) for key in NODES}


WRONG: dict[str, tuple[object, str, object]] = {
    "priorities do not count in the turn": (jobs, "turn", _without_priority),
    "a job that has begun has no better turn": (jobs, "turn", _without_begun),
    "neither the nodes' states nor a rest is looked at": (jobs, "_rest_reason", lambda _: None),
    "a job that rests keeps its node": (jobs, "_on_nodes", _on_nodes_of_all),
    "only the first of several nodes is looked at": (jobs, "_by_node", _by_first_node),
    "the gang on the node is not looked at": (jobs, "_on_nodes", lambda *_: (None, None)),
    "a gang that starts is asked to leave": (jobs, "_runs", lambda *_: True),
    "places on dead agents count": (
        jobs,
        "_own_places",
        lambda _, active, **__: sum(active.places.values()),
    ),
    "a gang grows into what others need": (jobs, "left_for_others", lambda *_: 0),
    "a gang starts with what others need": (jobs, "count_for", _alone),
    "no gang starts smaller": (jobs, "count_for", _whole_or_none),
    "nobody shrinks": (jobs, "who_shrinks", lambda *_: []),
    "everybody shrinks": (jobs, "who_shrinks", lambda _, holders, *__: holders),
    "shares do not count": (jobs, "who_shrinks", _equal_shares),
    "gangs change their size too late": (jobs, "RESIZE_PAUSE_SECONDS", 20.0),
    "the younger come first": (places, "comes_before", _younger_first),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[name])
    assert is_caught()
