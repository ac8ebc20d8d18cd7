"""Fault rules on both databases, and variants of them and of recovery that are wrong."""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import bindparam, delete, select, update

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.base.rng import Streams
from podyard.control.compute import nodes
from podyard.db.compute.nodes import next_address
from podyard.db.platform import faults as rows
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.faults import broken_chips, node_faults
from podyard.db.tables.faults import faults as fault_table
from podyard.db.views import fleet as fleet_rows
from podyard.domain.node import UsageClass
from podyard.domain.principal import PLATFORM
from podyard.loop.steps import Loop
from podyard.scheduler.recovery import Recovery, decide
from tests.builders import FLEET, Play, node_spec
from tests.store import test_recovery
from tests.store.fault_play import add, counted, remove, rule

TWO_PODS = FLEET.replace("v2: {shape: 4x4}", "v2: {shape: 4x4, pods: 2}")


def test_a_rule_with_a_count_strikes_so_often_also_when_many_ask_at_once(play: Play) -> None:
    fault = add(play, "error", count=2)
    struck: list[bool] = []

    def ask() -> None:
        for _ in range(5):
            struck.append(play.database.run(lambda uow: rows.count(uow, fault)))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(struck), sum(struck)) == (30, 2)
    assert (rule(play, fault).fired, rule(play, fault).over, counted(play)) == (2, True, 0)


def test_creations_at_the_same_time_share_the_count(play: Play) -> None:
    add(play, "preempt", during="create", count=2, match={"usage": "*"})
    for index in range(4):
        play.run(nodes.create, f"n{index}", node_spec())
    play.turn()
    play.turn(10)
    assert sorted(play.states().values()) == ["PREEMPTED", "PREEMPTED", "READY", "READY"]


def test_a_new_loop_keeps_the_rules(play: Play, database: Database, clock: ManualClock) -> None:
    for name in ("a", "b", "c"):
        play.create(name, usage_class=UsageClass.SPOT)
    fault = add(play, "preempt", from_=100, every=100, count=2, probability=1)
    play.turn(50)
    play.loop.stop()
    play.loop = Loop(database, play.fleet, lambda *_: None, clock, "other")
    for _ in range(8):
        play.turn(50)
    assert play.states() == {"a": "PREEMPTED", "b": "PREEMPTED", "c": "READY"}
    assert rule(play, fault).over


def test_a_unit_that_is_refused_counts_nothing(play: Play) -> None:
    fault = add(play, "lostOperation", count=1)

    def refused(uow: UnitOfWork) -> None:
        nodes.create(uow, play.fleet, PLATFORM, "demo", "us-central1-a", "n", node_spec())
        raise PodyardError(Code.ABORTED, "no")

    with pytest.raises(PodyardError, match="no"):
        play.database.run(refused)
    assert (rule(play, fault).fired, counted(play)) == (0, 1)


def test_the_clock_knows_how_many_rules_may_be_felt(play: Play) -> None:
    assert counted(play) == 0
    first, second = add(play, "stockout", until=100), add(play, "stockout")
    assert counted(play) == 2
    remove(play, second)
    assert counted(play) == 1
    play.turn(100)
    assert (counted(play), rule(play, first).over) == (0, True)


def test_a_slow_link_is_felt_until_it_is_over(play: Play) -> None:
    play.create("n", "v2-32")
    add(play, "link", factor=3, seconds=100)
    play.turn()
    key = play.node().node_key
    assert (play.node().state, counted(play)) == ("READY", 1)
    assert play.database.read(lambda uow: rows.slowness(uow, key)) == 3
    play.turn(100)
    assert play.database.read(lambda uow: rows.slowness(uow, key)) == 1
    assert counted(play) == 0


def test_removing_a_rule_leaves_nothing_of_it(play: Play) -> None:
    play.create("a", usage_class=UsageClass.SPOT)
    play.create("b", "v4-8")
    for effect in ("preempt", "chip", "link"):
        fields: dict[str, Any] = {"preempt": {"notice": 50}, "link": {"factor": 2}}.get(effect, {})
        target = "a" if effect == "preempt" else "b"
        fault = add(play, effect, match={"resource": target}, **fields)
        play.turn()
        remove(play, fault)
        play.turn(20)
    play.turn(100)
    assert play.states() == {"a": "READY", "b": "READY"}
    left = play.database.read(
        lambda uow: (uow.all(select(broken_chips)), uow.all(select(node_faults)))
    )
    assert (left, counted(play)) == (([], []), 0)


def test_addresses_do_not_repeat(play: Play) -> None:
    assert play.database.read(next_address) == 1
    play.create("a", "v2-8")
    play.run(nodes.delete, "a")
    play.create("b", "v5litepod-8")
    assert [host.internal_ip for host in play.node("b").hosts] == ["10.128.0.4"]
    assert play.database.read(next_address) == 3


# Deliberately wrong variants: each breaks one of the rules above, and the test next to it must
# notice.

Wrong = Callable[[pytest.MonkeyPatch], None]


def _broken_chips_are_given_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "broken_chips_by_pod", lambda uow: {})


def _every_slice_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("podyard.control.jobs.recovery.decide", lambda *_: Recovery.KEEP)


def _spot_nodes_are_repaired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "podyard.control.jobs.recovery.decide", lambda _, *rest: decide(UsageClass.ON_DEMAND, *rest)
    )


def _counts_have_no_limit(patch: pytest.MonkeyPatch) -> None:
    more = update(fault_table).where(fault_table.c.fault_id == bindparam("id"))
    patch.setattr(rows, "_STRUCK", more.values(fired=fault_table.c.fired + 1))


def _nobody_tells_the_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("podyard.control.compute.queue_states.maintain", lambda *_: None)


def _chips_are_never_mended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("podyard.control.jobs.recovery.mend", lambda *_: None)


def _any_pod_will_do(patch: pytest.MonkeyPatch) -> None:
    made = fleet_rows._node_request
    patch.setattr(
        fleet_rows, "_node_request", lambda *args: dataclasses.replace(made(*args), last_pod="")
    )


def _the_clock_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "_tell_clock", lambda uow: None)


def _a_removed_rule_keeps_its_store(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "remove", lambda uow, fault: uow.execute(delete(fault_table)))


WRONG: list[tuple[Wrong, Callable[..., None]]] = [
    (_broken_chips_are_given_away, test_recovery.test_no_chips_are_given_away_that_are_broken),
    (
        _every_slice_is_kept,
        test_recovery.test_a_node_waits_for_another_slice_in_the_order_of_the_queue_when_there_is_none,
    ),
    (_spot_nodes_are_repaired, test_recovery.test_a_node_that_may_be_taken_back_is),
    (_counts_have_no_limit, test_a_rule_with_a_count_strikes_so_often_also_when_many_ask_at_once),
    (_nobody_tells_the_queue, test_recovery.test_the_other_slices_of_a_multislice_restart),
    (
        _chips_are_never_mended,
        test_recovery.test_a_rule_that_is_removed_gives_its_chips_back_at_once,
    ),
    (
        _any_pod_will_do,
        test_recovery.test_a_node_whose_chips_never_come_back_gets_another_slice_in_the_same_pod,
    ),
    (_the_clock_is_not_told, test_the_clock_knows_how_many_rules_may_be_felt),
    (_a_removed_rule_keeps_its_store, test_removing_a_rule_leaves_nothing_of_it),
]
_MORE: Mapping[str, Any] = {"usage": UsageClass.SPOT, "seconds": 50}


@pytest.mark.parametrize(
    ("wrong", "right"), WRONG, ids=[wrong.__name__.strip("_") for wrong, _ in WRONG]
)
def test_a_wrong_variant_is_noticed(
    wrong: Wrong,
    right: Callable[..., None],
    tmp_path: Path,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'podyard.db'}", clock, Streams(0))
    migrations.upgrade(database)
    database.run(lambda uow: platform_clock.set_up(uow, ClockMode.SYSTEM))
    takes = list(inspect.signature(right).parameters)
    given: dict[str, Any] = {"database": database, "clock": clock, **_MORE}
    if "play" in takes:
        given["play"] = Play(database, clock)
    wrong(monkeypatch)
    with pytest.raises(AssertionError):
        right(**{name: given[name] for name in takes})
    database.close()
