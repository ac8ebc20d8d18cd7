"""The one writer of state, leases, outbox, timers, the platform clock and the migrations, on both
databases."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, select, update

from podyard import migrations
from podyard.base.clock import NANOS_PER_SECOND, ClockMode, ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.db.compute import nodes as node_rows
from podyard.db.store import leases, outbox, platform_clock, timers
from podyard.db.store.transition import create_record, move
from podyard.db.store.unit_of_work import Database, Stale, UnitOfWork
from podyard.db.tables.base import metadata, state_changes
from podyard.db.tables.billing import usage_events
from podyard.db.tables.compute import nodes
from podyard.domain.node import NodeRecord, NodeState
from podyard.loop.runner import follow
from podyard.loop.steps import Loop
from tests.builders import Play, node_record


def _node(**changes: Any) -> NodeRecord:
    return node_record(zone="us-central1-f", **changes)


def _read(uow: UnitOfWork) -> NodeRecord:
    return node_rows.get_by_key(uow, "n")


def test_a_move_follows_the_table_and_writes_its_events_in_the_same_unit(
    database: Database,
) -> None:
    database.run(lambda uow: create_record(uow, _node(), reason="asked"))
    database.run(lambda uow: move(uow, _read(uow), "created", reason="ready"))
    with pytest.raises(PodyardError, match="READY: created is not possible"):
        database.run(lambda uow: move(uow, _read(uow), "created", reason="again"))

    def lost(uow: UnitOfWork) -> None:
        move(uow, _read(uow), "preempt", reason="gone")
        raise PodyardError(Code.ABORTED, "no")

    with pytest.raises(PodyardError, match="no"):
        database.run(lost)
    events = database.read(lambda uow: uow.all(select(state_changes).order_by(state_changes.c.seq)))
    assert [(e["from_state"], e["to_state"], e["version"]) for e in events] == [
        ("", "CREATING", 1),
        ("CREATING", "READY", 2),
    ]
    used = database.read(lambda uow: uow.all(select(usage_events).order_by(usage_events.c.seq)))
    assert [(u["event_id"], u["state"], u["billable"]) for u in used] == [
        (events[0]["event_id"], "CREATING", False),
        (events[1]["event_id"], "READY", True),
    ]


def test_a_stale_row_is_not_moved(database: Database) -> None:
    database.run(lambda uow: create_record(uow, _node(), reason="asked"))
    old = database.read(_read)
    database.run(lambda uow: move(uow, _read(uow), "created", reason="ready"))
    with pytest.raises(Stale):
        database.run(
            lambda uow: move(
                uow, dataclasses.replace(old, state=NodeState.READY), "stop", reason="late"
            )
        )


def test_an_event_is_never_before_the_last_one(database: Database, clock: ManualClock) -> None:
    clock.advance(100)
    database.run(lambda uow: create_record(uow, _node(), reason="asked"))
    early = PlatformTime(clock.now().nanos).plus_seconds(-50)
    database.run(lambda uow: move(uow.at(early), _read(uow), "created", reason="ready"))
    events = database.read(lambda uow: uow.all(select(state_changes).order_by(state_changes.c.seq)))
    assert events[1]["at"] == events[0]["at"]


def test_two_live_nodes_of_one_name_cannot_both_stand(database: Database) -> None:
    database.run(lambda uow: create_record(uow, _node(), reason="asked"))
    with pytest.raises(Exception, match=r"(?i)unique"):
        database.run(lambda uow: create_record(uow, _node(node_key="m"), reason="asked"))
    database.run(lambda uow: uow.execute(update(nodes).values(live_name=None)))
    database.run(lambda uow: create_record(uow, _node(node_key="m"), reason="asked"))


def test_a_lease_keeps_its_fence_while_renewed_and_raises_it_when_taken_over(
    database: Database, clock: ManualClock
) -> None:
    def take(owner: str) -> leases.Lease | None:
        return database.run(lambda uow: leases.acquire(uow, "l", owner, 3))

    first = take("a")
    assert first is not None
    clock.advance(2)
    again = take("a")
    assert again is not None
    assert again.fence == first.fence
    assert take("b") is None
    clock.advance(3)
    second = take("b")
    assert second is not None
    assert second.fence == first.fence + 1
    assert take("a") is None
    database.run(lambda uow: leases.release(uow, "l", "b"))
    third = take("a")
    assert third is not None
    assert third.fence == second.fence + 1
    clock.advance(10)
    lapsed = take("a")  # it may have been replaced meanwhile: an old fence must not come back
    assert lapsed is not None
    assert lapsed.fence == third.fence + 1


def test_a_loop_need_not_wait_for_the_lease_of_one_that_has_ended(
    database: Database, clock: ManualClock
) -> None:
    play = Play(database, clock)

    def loop(owner: str) -> Loop:
        return Loop(play.database, play.fleet, lambda *_: None, play.clock, owner)

    play.loop.stop()
    assert loop("host/7/a_b").round()
    for other in ("", "b", "a%b", "axb", "7/a"):
        follow(play.database, other)
        assert not loop("host/8/next").round(), "it leads, for all that is known"
    follow(play.database, "a_b")
    assert loop("host/8/next").round()


def test_the_outbox_keeps_order_and_forgets_what_was_sent(
    database: Database, clock: ManualClock
) -> None:
    for name in ("a", "b", "c"):
        database.run(lambda uow, n=name: outbox.put(uow, n, "t", ["1"]))
    waiting = database.read(outbox.list_unsent)
    assert [message.queue for message in waiting] == ["a", "b", "c"]
    database.run(lambda uow: outbox.mark_sent(uow, [waiting[0].message_id]))
    assert [message.queue for message in database.read(outbox.list_unsent)] == ["b", "c"]


def test_timers_come_by_due_time_and_then_by_age(database: Database) -> None:
    for kind, due in (("late", 30), ("first", 10), ("second", 10)):
        database.run(lambda uow, k=kind, d=due: timers.put(uow, k, "n", 1, PlatformTime(d)))
    taken = [database.run(lambda uow: timers.take_next(uow, PlatformTime(20))) for _ in range(3)]
    assert [timer.kind if timer else None for timer in taken] == ["first", "second", None]


def test_a_local_clock_stands_still_without_its_loop(
    empty_database: Database, clock: ManualClock
) -> None:
    database = empty_database
    migrations.upgrade(database)
    database.run(lambda uow: platform_clock.set_up(uow, ClockMode.LOCAL))

    def now() -> float:
        return database.read(lambda uow: uow.now).nanos / 1e9 - start

    start = database.read(lambda uow: uow.now).nanos / 1e9
    clock.advance(5)
    assert now() == 0  # no loop has ever run
    database.run(lambda uow: platform_clock.tick(uow, 1, last_fence=0))
    clock.advance(0.5)
    assert now() == 0.5
    clock.advance(100)
    assert now() == 1.0  # the horizon: the loop is gone
    database.run(lambda uow: platform_clock.tick(uow, 2, last_fence=0))
    assert now() == 1.0  # another loop: the gap does not count
    clock.advance(33)
    database.run(lambda uow: platform_clock.tick(uow, 3, last_fence=2))
    assert now() == 34.0  # the same loop was only late, even if its lease had lapsed
    clock.advance(60)
    database.run(
        lambda uow: platform_clock.tick(uow, 3, last_fence=3, suspended_nanos=60 * NANOS_PER_SECOND)
    )
    assert now() == 35.0  # the machine slept
    database.run(lambda uow: platform_clock.write(uow, uow.clock.stop_at(uow.real_now)))
    clock.advance(50)
    assert now() == 35.0


def test_migrations_go_up_down_and_up_again_and_match_the_tables(empty_database: Database) -> None:
    database = empty_database
    migrations.migrate(database.engine, migrations.HEAD)
    with database.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    assert differences == []
    by_revisions = _schema(database)
    migrations.migrate(database.engine, "base")
    assert set(inspect(database.engine).get_table_names()) <= {"alembic_version"}
    migrations.migrate(database.engine, migrations.HEAD)
    assert migrations.current(database.engine) == migrations.HEAD
    assert _schema(database) == by_revisions


def test_an_empty_database_gets_the_tables_that_the_revisions_come_to(
    empty_database: Database,
) -> None:
    database = empty_database
    migrations.upgrade(database)
    at_once = _schema(database)
    assert {"nodes", "jobs", "alembic_version"} < set(at_once)
    migrations.migrate(database.engine, "base")  # and the revisions can take them away again
    migrations.migrate(database.engine, migrations.HEAD)
    by_revisions = _schema(database)
    assert at_once == by_revisions
    migrations.migrate(database.engine, "base")
    migrations.upgrade(database)
    assert _schema(database) == by_revisions


def _schema(database: Database) -> dict[str, Any]:
    """Return what each table has, but for the defaults that revisions leave for the rows of their
    time."""
    found = inspect(database.engine)
    return {
        table: {
            "columns": {
                item["name"]: (str(item["type"]), item["nullable"])
                for item in found.get_columns(table)
            },
            "primary key": found.get_pk_constraint(table),
            "foreign keys": sorted(map(repr, found.get_foreign_keys(table))),
            "indexes": sorted(map(_index, found.get_indexes(table))),
            "unique": sorted(map(repr, found.get_unique_constraints(table))),
            "checks": sorted(map(repr, found.get_check_constraints(table))),
        }
        for table in found.get_table_names()
    }


def _index(found: Any) -> str:
    options = {name: str(value) for name, value in found.get("dialect_options", {}).items()}
    return repr({**found, "dialect_options": options})


def test_a_database_of_a_newer_podyard_is_refused(database: Database) -> None:
    from sqlalchemy import text

    database.run(lambda uow: uow.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(PodyardError, match="newer"):
        migrations.upgrade(database)
