"""Maintenance of nodes and queued resources, on both databases."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.control.compute import maintenance, nodes
from podyard.db.compute import nodes as node_rows
from podyard.db.store.unit_of_work import Database
from tests.builders import FLEET, Play, request


def plan(play: Play, name: str, seconds: float = 1000.0, **options: Any) -> None:
    start = play.database.read(lambda uow: uow.now).plus_seconds(seconds)
    play.run(maintenance.schedule, name, start, start.plus_seconds(3600), **options)


def test_a_simulated_event_is_on_the_workers_for_its_time_and_the_node_goes_on(play: Play) -> None:
    play.create("n", "v2-32")
    operation = play.run(maintenance.simulate, "n", ["3", "1"])
    node = play.node()
    assert (node.state, node.health, node.maintenance_workers) == (
        "READY",
        "UNHEALTHY_MAINTENANCE",
        (1, 3),
    )
    assert not play.operation(operation).is_done
    play.turn(59)
    assert play.node().health == "UNHEALTHY_MAINTENANCE"
    play.turn(1)
    assert (play.node().health, play.node().maintenance_workers) == ("HEALTHY", ())
    ended = play.operation(operation)
    assert ended.response is not None
    assert node_rows.thaw(ended.response).health == "HEALTHY"


def test_a_simulated_event_is_seen_even_where_a_maintenance_takes_no_time(
    database: Database, clock: ManualClock
) -> None:
    play = Play(database, clock, FLEET.replace("maintenance_seconds: 60", "maintenance_seconds: 0"))
    play.create("n")
    play.run(maintenance.simulate, "n")
    assert (play.node().health, play.node().maintenance_workers) == ("UNHEALTHY_MAINTENANCE", (0,))
    play.turn()
    assert play.node().health == "HEALTHY"


def test_a_node_that_is_deleted_during_the_event_ends_it(play: Play) -> None:
    play.create("n")
    operation = play.run(maintenance.simulate, "n")
    play.run(nodes.delete, "n")
    play.turn()
    play.turn(60)
    assert play.operation(operation).error_code == int(Code.CANCELLED)


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        (["4"], "worker 4 does not exist: node .* has workers 0 to 3"),
        (["x"], "worker x does not exist"),
        (["-1"], "worker -1 does not exist"),
    ],
)
def test_workers_that_are_not_there_are_refused(play: Play, workers: list[str], text: str) -> None:
    play.create("n", "v2-32")
    with pytest.raises(PodyardError, match=text):
        play.run(maintenance.simulate, "n", workers)
    assert play.node().health == "HEALTHY"


def test_a_user_begins_a_planned_maintenance_early(play: Play) -> None:
    play.create("n", "v4-8")
    plan(play, "n")
    upcoming = play.node().upcoming_maintenance
    assert upcoming is not None
    assert (upcoming.type, upcoming.can_reschedule, upcoming.maintenance_status) == (
        "SCHEDULED",
        True,
        "PENDING",
    )
    operation = play.run(maintenance.perform, "n")
    during = play.node()
    assert (during.state, during.health) == ("REPAIRING", "UNHEALTHY_MAINTENANCE")
    assert during.upcoming_maintenance == dataclasses.replace(
        upcoming, maintenance_status="ONGOING"
    )
    play.turn(60)
    after = play.node()
    assert (after.state, after.health, after.upcoming_maintenance) == ("READY", "HEALTHY", None)
    assert play.operation(operation).state == "SUCCEEDED"
    play.turn(1000)
    assert play.history("node") == ["CREATING", "READY", "REPAIRING", "READY"]


def test_a_maintenance_that_nobody_begins_begins_with_its_window(play: Play) -> None:
    play.create("n")
    plan(play, "n", 500)
    play.turn(499)
    assert play.node().state == "READY"
    play.turn(1)
    assert play.node().state == "REPAIRING"
    play.turn(60)
    assert (play.node().state, play.node().upcoming_maintenance) == ("READY", None)


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        ("v4-8", None, "has no PENDING upcoming maintenance"),
        ("v4-8", {"can_reschedule": False}, "cannot be rescheduled"),
        ("v2-8", {}, "cannot be rescheduled"),
        ("v5litepod-1", {}, "cannot be rescheduled"),
        ("v5litepod-8", {}, None),
    ],
)
def test_only_what_may_be_begun_early_is(
    play: Play, kind: str, options: dict[str, Any] | None, text: str | None
) -> None:
    play.create("n", kind)
    if options is not None:
        plan(play, "n", **options)
    if text is None:
        play.run(maintenance.perform, "n")
        assert play.node().state == "REPAIRING"
        return
    with pytest.raises(PodyardError, match=text) as caught:
        play.run(maintenance.perform, "n")
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert play.node().state == "READY"


def test_maintenance_of_one_slice_restarts_the_others_and_ends_the_operation(play: Play) -> None:
    play.queue(request("s", count=2, kind="v4-8"))
    play.turn()
    play.turn(10)
    plan(play, "s-0")
    told = play.ask(maintenance.info, "q")
    assert [(name.rsplit("/", 1)[-1], number) for name, number, _ in told] == [
        (name, play.node(name).number) for name in ("s-0", "s-1")
    ]
    assert [upcoming is None for _, _, upcoming in told] == [False, True]
    with pytest.raises(PodyardError, match="node s-1 has no PENDING upcoming"):
        play.run(maintenance.perform_queued_resource, "q")
    assert play.states() == {"s-0": "READY", "s-1": "READY"}
    for stranger in ("projects/other/locations/us-central1-a/nodes/s-0", "nodes/s-0", "n"):
        with pytest.raises(PodyardError, match="is not a node of"):
            play.run(maintenance.perform_queued_resource, "q", [stranger])
    operation = play.run(maintenance.perform_queued_resource, "q", [play.node("s-0").name])
    assert (play.queued().state, play.states()) == (
        "PROVISIONING",
        {"s-0": "REPAIRING", "s-1": "READY"},
    )
    play.turn(60)
    assert play.states() == {"s-0": "READY", "s-1": "RESTARTING"}
    assert not play.operation(operation).is_done
    play.turn(5)
    assert (play.queued().state, play.states()) == ("ACTIVE", {"s-0": "READY", "s-1": "READY"})
    assert play.operation(operation).state == "SUCCEEDED"


def test_maintenance_of_all_slices_restarts_none(play: Play) -> None:
    play.queue(request("s", count=2, kind="v4-8"))
    play.turn()
    play.turn(10)
    for name in ("s-0", "s-1"):
        plan(play, name)
    operation = play.run(maintenance.perform_queued_resource, "q")
    assert play.states() == {"s-0": "REPAIRING", "s-1": "REPAIRING"}
    play.turn(60)
    assert (play.queued().state, play.operation(operation).state) == ("ACTIVE", "SUCCEEDED")
    assert "RESTARTING" not in play.history("node")


def test_a_window_in_the_past_is_refused(play: Play) -> None:
    play.create("n")
    with pytest.raises(PodyardError, match="must start in the future"):
        plan(play, "n", -10)
