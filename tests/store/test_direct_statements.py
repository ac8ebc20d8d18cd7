"""On SQLite, units of work speak to the driver: each statement of the platform reads what
SQLAlchemy reads."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    CompoundSelect,
    Integer,
    Numeric,
    Select,
    String,
    bindparam,
    column,
    insert,
    select,
    table,
)
from sqlalchemy.exc import IntegrityError, OperationalError

import podyard.db
from podyard.base.clock import ManualClock, PlatformTime
from podyard.db.engines import direct_statements
from podyard.db.engines.direct_statements import DirectConnection
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.access import projects
from podyard.db.tables.compute import nodes
from podyard.db.tables.types import PlatformTimeColumn, RealTimeColumn
from tests.builders import PROJECT
from tests.store import invoiced_yard

NODES = 6
LIVES = nodes.c.live_name.is_not(None)
STATEMENTS_LEAST = 200  # that the platform makes at import: fewer means that they are not found


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("yard")
    invoiced_yard.make(folder, NODES)
    with contextlib.closing(
        Database(f"sqlite:///{folder}/podyard.db", ManualClock(invoiced_yard.END))
    ) as made:
        yield made


@pytest.fixture
def direct(database: Database) -> Iterator[DirectConnection]:
    with database.engine.connect() as connection:
        yield DirectConnection(connection)


def _statements() -> Iterator[tuple[str, Any]]:
    for found in pkgutil.walk_packages(podyard.db.__path__, "podyard.db."):
        if ".postgresql" in found.name:
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, Select | CompoundSelect):
                yield f"{found.name}.{name}", value


def _given(statement: Any) -> dict[str, Any]:
    """A value for each parameter that the caller must give."""
    compiled = statement.compile()
    return {bind.key: _value(bind) for bind in compiled.binds.values() if bind.required}


def _value(bind: Any) -> Any:
    kind = bind.type
    if isinstance(kind, RealTimeColumn):
        value: Any = invoiced_yard.END
    elif isinstance(kind, PlatformTimeColumn):
        value = PlatformTime(invoiced_yard.END.nanos)
    elif isinstance(kind, Integer | Numeric):
        value = 3
    else:
        value = PROJECT if isinstance(kind, String) else 3
    return [value] if bind.expanding else value


def test_each_statement_reads_what_sqlalchemy_reads(
    database: Database, direct: DirectConnection
) -> None:
    count = rows = 0
    for name, statement in _statements():
        given = _given(statement)
        with database.engine.connect() as slow:
            expected = [dict(row) for row in slow.execute(statement, given).mappings()]
        for _ in range(2):  # the second time it is prepared
            assert direct.execute(statement, given).mappings().all() == expected, name
        assert [tuple(row) for row in direct.execute(statement, given)] == [
            tuple(row.values()) for row in expected
        ]
        assert direct.execute(statement, given).mappings().first() == (
            expected[0] if expected else None
        )
        count, rows = count + 1, rows + len(expected)
    assert count >= STATEMENTS_LEAST
    assert rows > count


def test_rows_that_are_streamed_are_read_as_they_are_wanted(direct: DirectConnection) -> None:
    statement = (
        select(nodes.c.node_id)
        .where(LIVES)
        .order_by(nodes.c.node_id)
        .execution_options(yield_per=1)
    )
    for _ in range(2):
        found = iter(direct.execute(statement))
        assert [next(found).node_id, next(found).node_id] == ["n0", "n1"]
        assert [row.node_id for row in found] == ["n2", "n3", "n4", "n5"]


def test_what_is_known_of_a_statement_goes_with_it(direct: DirectConnection) -> None:
    def ask(node_id: str) -> None:
        statement = select(nodes.c.zone).where(nodes.c.node_id == node_id, LIVES)
        assert len(direct.execute(statement).all()) == 1
        assert id(statement) in direct_statements._PREPARED

    ask("n0")
    gc.collect()
    before = set(direct_statements._PREPARED)
    for index in range(1, NODES):
        ask(f"n{index}")
    gc.collect()
    assert set(direct_statements._PREPARED) == before


def test_shapes_and_texts_have_limits(
    direct: DirectConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_statements, "SHAPES_KEPT_MAX", 5)
    monkeypatch.setattr(direct_statements, "TEXTS_KEPT_MAX", 5)
    for length in range(1, 12):
        asked = [f"n{index}" for index in range(length)]
        statement = select(nodes.c.zone).where(nodes.c.node_id.in_(asked), LIVES)
        assert len(direct.execute(statement).all()) == min(length, NODES)
        label = select(nodes.c.zone.label(f"zone_{length}")).where(nodes.c.node_id == "n0", LIVES)
        assert direct.execute(label).scalar_one() == "us-central1-a"
    assert len(direct_statements._SHAPES) <= 5
    assert all(len(shape.texts) <= 5 for shape in direct_statements._SHAPES.values() if shape)


def test_errors_are_those_of_sqlalchemy(direct: DirectConnection, database: Database) -> None:
    with pytest.raises(OperationalError, match="no such table: nowhere"):
        direct.execute(select(column("a")).select_from(table("nowhere")))
    row = database.read(lambda uow: uow.first(select(projects)))
    assert row is not None
    with pytest.raises(IntegrityError, match="UNIQUE"):
        direct.execute(insert(projects).values(**row))
    with pytest.raises(OperationalError, match="no transaction is active"):
        direct.command("COMMIT")


def test_a_parameter_that_is_missing_is_an_error(direct: DirectConnection) -> None:
    statement = select(nodes.c.zone).where(nodes.c.node_id == bindparam("name"))
    assert direct.execute(statement, {"name": "n1"}).scalar() == "us-central1-a"
    with pytest.raises(Exception, match="name"):
        direct.execute(statement)
    with pytest.raises(Exception, match="name"):
        direct.execute(statement, {"other": 1})


def test_a_database_that_is_damaged_says_so(tmp_path: Path) -> None:
    path = tmp_path / "podyard.db"
    path.write_bytes(b"no database at all" * 100)
    with (
        contextlib.closing(
            Database(f"sqlite:///{path}", ManualClock(invoiced_yard.END))
        ) as damaged,
        pytest.raises(Exception, match="not a database"),
    ):
        damaged.read(lambda uow: uow.first(select(nodes.c.zone)))
