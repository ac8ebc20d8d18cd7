"""Recovery from broken hardware, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.control.compute import nodes, queued_resources, reservations
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.base import state_changes
from podyard.domain.node import UsageClass
from tests.builders import FLEET, Play, request
from tests.store.fault_play import add, broken, check_room, chips, remove, rule

TWO_PODS = FLEET.replace("v2: {shape: 4x4}", "v2: {shape: 4x4, pods: 2}")


def test_a_node_whose_chips_come_back_is_ready_on_the_same_slice(play: Play) -> None:
    play.create("n")
    before = chips(play)
    fault = add(play, "chip", seconds=100, chips=2)
    play.turn()
    during = play.node()
    assert (during.state, during.health) == ("REPAIRING", "UNHEALTHY_TENSORFLOW")
    assert during.health_description == f"fault {fault}: chip: 2 chips are broken"
    (symptom,) = during.symptoms
    assert (symptom.symptom_type, symptom.worker_id) == ("MESH_BUILD_FAIL", "0")
    (mask,) = broken(play).values()
    assert before is not None
    assert mask.bit_count() == 2
    assert mask & before[1] == mask
    play.turn(99)
    assert play.node().state == "REPAIRING"
    check_room(play)
    play.turn(1)
    after = play.node()
    assert (after.state, after.health, after.symptoms, after.health_description) == (
        "READY",
        "HEALTHY",
        (),
        "",
    )
    assert (chips(play), broken(play)) == (before, {})


def test_what_a_fault_does_carries_its_id_and_is_its_doing(play: Play) -> None:
    play.create("n")
    fault = add(play, "chip", seconds=100)
    play.turn()
    play.turn(100)
    query = (
        select(state_changes).where(state_changes.c.machine == "node").order_by(state_changes.c.seq)
    )
    events = [
        (row["event"], row["actor"]) for row in play.database.read(lambda uow: uow.all(query))
    ]
    assert events == [
        ("create", "podyard"),
        ("created", "loop"),
        ("repair", "fault"),
        ("repaired", "loop"),
    ]
    last = play.database.read(lambda uow: uow.all(query))[2]
    assert last["reason"].startswith(f"fault {fault}: chip: ")


def test_a_node_whose_chips_never_come_back_gets_another_slice_in_the_same_pod(
    database: Database, clock: ManualClock
) -> None:
    play = Play(database, clock, TWO_PODS)
    for name in ("a", "b", "c", "d", "n"):
        play.create(name)
    before = chips(play)
    play.run(nodes.delete, "d")  # the hole in the first pod would be the better place
    play.turn()
    add(play, "chip", match={"resource": "n"})
    play.turn()
    assert play.node().state == "REPAIRING"
    play.turn(10)
    after = chips(play)
    assert play.node().state == "READY"
    assert before is not None and after is not None
    assert before[0] == after[0]
    assert before[1] != after[1]
    check_room(play)


def test_a_node_waits_for_another_slice_in_the_order_of_the_queue_when_there_is_none(
    play: Play,
) -> None:
    play.create("n", "v2-32")
    fault = add(play, "chip")
    play.turn()
    waiting = play.node()
    assert (waiting.state, chips(play)) == ("REPAIRING", None)
    assert "needs a free box" in waiting.state_reason
    play.create("small")
    assert play.node("small").state == "READY"
    remove(play, fault)
    play.turn()
    assert (play.node().state, chips(play)) == ("REPAIRING", None)
    play.run(nodes.delete, "small")
    play.turn()
    play.turn(10)
    assert play.node().state == "READY"
    check_room(play)


@pytest.mark.parametrize(("patience", "stays"), [(60, False), (100, True), (0, True)])
def test_how_long_is_waited_for_chips_is_the_fleets_to_say(
    database: Database, clock: ManualClock, patience: int, stays: bool
) -> None:
    play = Play(
        database,
        clock,
        FLEET.replace("create_seconds: 10", f"create_seconds: 10, repair_seconds: {patience}"),
    )
    play.create("n")
    before = chips(play)
    add(play, "chip", seconds=100)
    play.turn()
    assert (chips(play) == before) is stays
    play.turn(100)
    assert play.node().state == "READY"
    assert (chips(play) == before) is stays


@pytest.mark.parametrize("usage", [UsageClass.SPOT, UsageClass.PREEMPTIBLE])
def test_a_node_that_may_be_taken_back_is(play: Play, usage: UsageClass) -> None:
    play.create("n", usage_class=usage)
    add(play, "chip", seconds=100)
    play.turn()
    assert (play.node().state, chips(play)) == ("PREEMPTED", None)
    play.turn(200)
    assert (play.node().state, broken(play)) == ("PREEMPTED", {})


def test_a_node_that_is_deleted_meanwhile_is_not_revived(play: Play) -> None:
    play.create("n")
    add(play, "chip", seconds=100)
    play.turn()
    play.run(nodes.delete, "n")
    play.turn()
    play.create("n")
    assert play.node().state == "READY"
    play.turn(200)
    assert play.history("node")[-2:] == ["CREATING", "READY"]


def test_chips_that_come_back_end_no_maintenance_that_has_begun_since(
    database: Database, clock: ManualClock
) -> None:
    play = Play(
        database,
        clock,
        FLEET.replace("create_seconds: 10", "create_seconds: 10, repair_seconds: 60"),
    )
    play.create("n")
    add(play, "chip", seconds=500)
    play.turn()
    play.turn(10)
    assert play.node().state == "READY"  # on another slice
    add(play, "maintenance", seconds=1000)
    play.turn()
    play.turn(600)
    assert (broken(play), play.node().state) == ({}, "REPAIRING")
    play.turn(400)
    assert play.node().state == "READY"


def test_a_rule_that_is_removed_gives_its_chips_back_at_once(play: Play) -> None:
    play.create("n")
    before = chips(play)
    fault = add(play, "chip", seconds=1000)
    play.turn()
    remove(play, fault)
    play.turn()
    assert (play.node().state, chips(play), broken(play)) == ("READY", before, {})


def test_a_node_that_is_repaired_is_not_struck_again(play: Play) -> None:
    play.create("n")
    first, second = add(play, "chip", seconds=100), add(play, "host", seconds=300)
    play.turn()
    assert (rule(play, first).fired, rule(play, second).fired) == (1, 0)
    play.turn(100)
    assert play.node().state == "READY"
    check_room(play)


def test_no_chips_are_given_away_that_are_broken(play: Play) -> None:
    play.create("n")
    add(play, "power", seconds=1000)
    play.turn()
    play.run(nodes.delete, "n")
    play.turn()
    for name in ("a", "b", "c"):
        play.create(name)
        assert play.node(name).state == "READY"
    check_room(play)
    refused = play.create("d")
    assert refused.error_code == 8
    play.turn(1000)
    play.create("e")
    assert play.node("e").state == "READY"


@pytest.mark.parametrize(
    ("effect", "health", "symptom", "count"),
    [
        ("host", "TIMEOUT", "EXECUTE_TIMED_OUT", 4),
        ("power", "UNHEALTHY_TENSORFLOW", "MESH_BUILD_FAIL", 4),
        ("link", "UNHEALTHY_TENSORFLOW", "MESH_BUILD_FAIL", 2),
    ],
)
def test_hosts_power_and_links_break_what_belongs_to_them(
    play: Play, effect: str, health: str, symptom: str, count: int
) -> None:
    play.create("n", "v2-32")
    more = {} if effect == "link" else {"worker": 2}
    add(play, effect, seconds=50, **more)
    play.turn()
    during = play.node()
    assert (during.state, during.health, during.symptoms[0].symptom_type) == (
        "REPAIRING",
        health,
        symptom,
    )
    (mask,) = broken(play).values()
    assert mask.bit_count() == count
    if effect != "link":
        assert [item.worker_id for item in during.symptoms] == ["2"]
    play.turn(50)
    assert play.node().state == "READY"


def test_a_host_that_a_node_does_not_have_cannot_break(play: Play) -> None:
    play.create("n")
    fault = add(play, "host", worker=1)
    play.turn()
    assert (play.node().state, broken(play), rule(play, fault).over) == ("READY", {}, True)


def test_a_slice_of_one_chip_has_no_link(play: Play) -> None:
    play.create("n", "v5litepod-1")
    add(play, "link")
    play.turn()
    assert (play.node().state, broken(play)) == ("READY", {})


def test_a_queued_resource_is_active_again_with_its_node(play: Play) -> None:
    play.queue()
    play.turn()
    play.turn(10)
    assert play.queued().state == "ACTIVE"
    add(play, "host", seconds=50)
    play.turn()
    assert (play.queued().state, play.states()) == ("PROVISIONING", {"n": "REPAIRING"})
    play.turn(50)
    assert (play.queued().state, play.states()) == ("ACTIVE", {"n": "READY"})


@pytest.mark.parametrize("seconds", [50, 0])
def test_the_other_slices_of_a_multislice_restart(play: Play, seconds: int) -> None:
    play.queue(request("s", count=2))
    play.turn()
    play.turn(10)
    add(play, "chip", seconds=seconds, match={"resource": "s-1"})
    play.turn()
    assert (play.queued().state, play.states()) == (
        "PROVISIONING",
        {"s-0": "READY", "s-1": "REPAIRING"},
    )
    play.turn(seconds or 10)
    assert play.states() == {"s-0": "RESTARTING", "s-1": "READY"}
    play.turn(5)
    assert (play.queued().state, play.states()) == ("ACTIVE", {"s-0": "READY", "s-1": "READY"})
    check_room(play)


def test_a_queued_resource_that_is_deleted_during_the_repair_stays_gone(play: Play) -> None:
    play.queue()
    play.turn()
    play.turn(10)
    add(play, "chip", seconds=50)
    play.turn()
    play.run(queued_resources.delete, "q", force=True)
    play.turn()
    play.turn(100)
    assert (play.states(), play.held()) == ({}, [])
    with pytest.raises(PodyardError, match="not found"):
        play.queued()


def test_a_reserved_node_goes_on_under_its_reservation(play: Play) -> None:
    play.run(reservations.create, "r", "v2", 8)
    play.turn()
    play.create("n", usage_class=UsageClass.RESERVED)
    assert play.node().state == "READY"
    add(play, "chip")
    play.turn()
    play.turn(10)
    assert play.node().state == "READY"
    check_room(play)


def test_a_stopped_node_has_no_chips_to_lose(play: Play) -> None:
    play.create("n")
    play.run(nodes.stop, "n")
    play.turn()
    fault = add(play, "chip")
    play.turn()
    assert (play.node().state, rule(play, fault).fired) == ("STOPPED", 0)
