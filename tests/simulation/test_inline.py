"""The database in memory: units are atomic, and the short way to the driver gives what SQLAlchemy
gives."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import bindparam, func, insert, select, update

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.db.store import platform_clock, timers
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import timers as table
from podyard.db.tables.compute import nodes
from podyard.simulation.scenario import fleet_for
from podyard.simulation.world import World


@pytest.fixture
def world() -> Any:
    made = World(1, fleet_for(6), 8)
    yield made
    made.close()


def _put(uow: UnitOfWork, *keys: str) -> None:
    for number, key in enumerate(keys):
        timers.put(uow, "node.created", key, 1, PlatformTime(2**61 + number))


def _keys(world: World) -> list[str]:
    return [row[0] for row in world.rows("SELECT resource_key FROM timers ORDER BY timer_id")]


def test_a_unit_that_fails_leaves_nothing_and_the_next_one_runs(world: World) -> None:
    def failing(uow: UnitOfWork) -> None:
        _put(uow, "a")
        raise invalid("no")

    with pytest.raises(PodyardError, match="no"):
        world.database.run(failing)
    world.database.run(lambda uow: _put(uow, "b"))
    assert _keys(world) == ["b"]


def test_a_clock_that_a_failed_unit_has_set_is_forgotten(world: World) -> None:
    before = world.now()

    def failing(uow: UnitOfWork) -> None:
        platform_clock.set_forward(uow, before.plus_seconds(60))
        assert uow.clock.anchor_platform > before
        raise invalid("no")

    with pytest.raises(PodyardError):
        world.database.run(failing)
    assert world.now() == before


def test_a_unit_that_reads_may_not_write(world: World) -> None:
    with pytest.raises(AssertionError, match="has written"):
        world.database.read(lambda uow: _put(uow, "a"))


def test_a_unit_inside_a_unit_is_refused(world: World) -> None:
    with pytest.raises(AssertionError, match="inside a unit"):
        world.database.run(lambda _: world.database.run(lambda uow: _put(uow, "a")))
    world.database.run(lambda uow: _put(uow, "a"))


def test_units_that_run_together_each_succeed_or_fail_alone(world: World) -> None:
    def second(uow: UnitOfWork) -> None:
        _put(uow, "b")
        raise invalid("no")

    results = world.database.run_together(
        [lambda uow: _put(uow, "a"), second, lambda uow: _put(uow, "c")]
    )
    assert [isinstance(result, PodyardError) for result in results] == [False, True, False]
    assert _keys(world) == ["a", "c"]


def _statements() -> list[tuple[Any, Any]]:
    """Statements of every shape that the use cases have, some of them twice with other values."""
    due = table.c.due.type
    lists = [
        select(table.c.resource_key).where(table.c.resource_key.in_(keys))
        for keys in (["a"], ["a", "b", "c"], [])
    ]
    return [
        (select(table).where(table.c.resource_key == "a"), None),
        (select(table).where(table.c.resource_key == "b"), None),
        (select(table).where(table.c.resource_key == bindparam("key")), {"key": "b"}),
        (
            select(table.c.due).where(table.c.due <= bindparam("until", type_=due)),
            {"until": PlatformTime(2**62)},
        ),
        *[(query.order_by(table.c.timer_id), None) for query in lists],
        (
            select(table.c.kind)
            .where(table.c.resource_key.not_in(["a"]), table.c.version == 1)
            .limit(1),
            None,
        ),
        (select(func.count(), func.max(table.c.due)).select_from(table), None),
        (select(func.max(table.c.due)), None),
        (select(table.c.kind, func.count().label("many")).group_by(table.c.kind), None),
        (select(nodes.c.spec, nodes.c.created).limit(2), None),
    ]


def test_the_short_way_reads_what_sqlalchemy_reads(world: World) -> None:
    world.database.run(lambda uow: _put(uow, "a", "b", "c"))
    fast, slow = world.database.connection, world.database._plain
    for statement, parameters in _statements():
        expected = [dict(row) for row in slow.execute(statement, parameters).mappings()]
        assert [dict(row) for row in fast.execute(statement, parameters).mappings()] == expected, (
            str(statement)
        )
        assert [tuple(row) for row in fast.execute(statement, parameters)] == [
            tuple(row.values()) for row in expected
        ]
        first = fast.execute(statement, parameters).mappings().first()
        assert first == (expected[0] if expected else None)


def test_the_short_way_writes_what_sqlalchemy_writes(world: World) -> None:
    found = []
    for connection in (world.database.connection, world.database._plain):
        for number, key in enumerate("abc"):
            row = {"kind": "k", "resource_key": key, "version": number, "due": PlatformTime(number)}
            connection.execute(insert(table).values(**row))
        for keys in (["a"], ["b", "c"], []):
            change = (
                update(table)
                .where(table.c.resource_key.in_(keys))
                .values(version=table.c.version + 10)
            )
            assert connection.execute(change).rowcount == len(keys)
        found.append(
            world.rows("SELECT resource_key, version, due FROM timers ORDER BY resource_key")
        )
        world.database.driver.execute("DELETE FROM timers")
    assert found[0] == found[1] == [("a", 10, 0), ("b", 11, 1), ("c", 12, 2)]
