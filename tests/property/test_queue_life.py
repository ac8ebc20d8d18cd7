"""Whatever users, time and preemption do to queued resources: the rules that hold after each
step."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from podyard.base.clock import ClockMode, ManualClock
from podyard.base.errors import PodyardError
from podyard.control.compute import nodes, queued_resources, quota
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.db.tables.compute import nodes as nodes_table
from podyard.db.tables.queue import queued_resources as queue_table
from podyard.db.views import fleet as fleet_rows
from podyard.domain.node import NODE, UsageClass
from podyard.domain.queued_resource import QUEUED_RESOURCE
from podyard.hardware.accelerator_types import kind_of
from podyard.testing.server import write_empty_database
from tests.builders import FLEET, PROJECT, Play, node_spec, request
from tests.conftest import START
from tests.unit.scheduler.scheduling import assert_no_overlap

QUOTA = 48
MACHINES = {machine.name: machine for machine in (NODE, QUEUED_RESOURCE)}

STEP = st.one_of(
    st.tuples(
        st.just("queue"),
        st.sampled_from("ab"),
        st.integers(1, 4),
        st.sampled_from([None, 5.0, 40.0]),
        st.booleans(),
    ),
    st.tuples(st.just("delete"), st.sampled_from("ab"), st.booleans()),
    st.tuples(st.just("reset"), st.sampled_from("ab")),
    st.tuples(st.just("preempt"), st.integers(0, 5)),
    st.tuples(st.just("delete node"), st.integers(0, 5)),
    st.tuples(st.just("plain"), st.sampled_from(["x", "a-0"])),
)
# None: the next step comes before the loop has turned.
PAUSE = st.sampled_from([None, 0.0, 5.0, 10.0, 10.0])


def _act(play: Play, step: tuple[Any, ...]) -> None:
    verb, *rest = step
    live = sorted(play.states())
    if verb == "queue":
        name, count, until, multislice = rest
        spec = request(name, count, usage_class=UsageClass.SPOT, valid_until_seconds=until)
        if not multislice:
            made = tuple(type(node)(node.node_id, node.spec) for node in spec.nodes)
            spec = type(spec)(nodes=made, usage_class=UsageClass.SPOT, valid_until_seconds=until)
        play.queue(spec, name)
    elif verb == "delete":
        play.run(queued_resources.delete, *rest)
    elif verb == "reset":
        play.run(queued_resources.reset, *rest)
    elif verb == "preempt" and live:
        play.ask(nodes.preempt, live[rest[0] % len(live)])
    elif verb == "delete node" and live:
        play.run(nodes.delete, live[rest[0] % len(live)])
    elif verb == "plain":
        play.run(nodes.create, rest[0], node_spec(usage_class=UsageClass.SPOT))


def _check(uow: UnitOfWork, play: Play) -> None:
    queues = {row["queued_resource_key"]: row for row in uow.all(select(queue_table))}
    found = uow.all(select(nodes_table).where(nodes_table.c.live_name.is_not(None)))
    snapshot = fleet_rows.load(uow, play.fleet)
    assert_no_overlap(snapshot.slices)
    holding = {item.node_key for item in snapshot.slices}
    for key, row in queues.items():
        mine = [node for node in found if node["queued_resource_key"] == key]
        _check_gang(row, mine, holding)
    held = [node for node in found if node["queued_resource_key"] is None]
    asked = sum(
        len(row["spec"]["nodes"]) for row in queues.values() if row["live_name"] is not None
    )
    used = quota.usage(uow, PROJECT, "us-central1", kind_of("v2-8", "2x2"), UsageClass.SPOT)
    assert used == 8 * (len(held) + asked)
    assert 0 <= used <= QUOTA


def _check_gang(row: Mapping[str, Any], mine: list[Mapping[str, Any]], holding: set[str]) -> None:
    state, wanted = row["state"], len(row["spec"]["nodes"])
    if state == "GONE":
        assert mine == []
    elif state in ("ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED"):
        assert {node["state"] for node in mine} <= {"DELETING"}
    elif state in ("PROVISIONING", "ACTIVE"):
        assert len(mine) == wanted
        if state == "ACTIVE":
            assert {node["state"] for node in mine} == {"READY"}
        elif (
            row["activated"] is None
            and "PREEMPTED" not in {node["state"] for node in mine}
            and not row["repaired"]
        ):
            assert {node["node_key"] for node in mine} <= holding
    elif state == "SUSPENDED":
        assert {node["state"] for node in mine} <= {"PREEMPTED", "TERMINATED", "DELETING"}
        assert not {node["node_key"] for node in mine} & holding


def _check_history(uow: UnitOfWork) -> None:
    for row in uow.all(
        select(state_changes).where(
            state_changes.c.machine.in_(MACHINES), state_changes.c.version > 1
        )
    ):
        assert (
            MACHINES[row["machine"]].next_state(row["from_state"], row["event"]) == row["to_state"]
        )


@pytest.mark.slow
@given(st.lists(st.tuples(STEP, PAUSE), min_size=5, max_size=14))
@settings(max_examples=30)
def test_no_half_gang_no_orphan_no_wrong_quota(
    steps: list[tuple[tuple[Any, ...], float | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "podyard.db"
        write_empty_database(path)
        clock = ManualClock(START)
        database = Database(f"sqlite:///{path}", clock)
        try:
            database.run(lambda uow: platform_clock.set_up(uow, ClockMode.SYSTEM))
            play = Play(database, clock, FLEET + f"quotas: {{default: {QUOTA}}}\n")
            for step, pause in steps:
                with contextlib.suppress(PodyardError):  # what is refused changes nothing
                    _act(play, step)
                if pause is not None:
                    play.turn(pause)
                database.read(lambda uow: _check(uow, play))
            play.turn(100)
            database.read(lambda uow: _check(uow, play))
            database.read(_check_history)
        finally:
            database.close()
