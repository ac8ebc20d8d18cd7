"""What all tests share: binaries that may be missing, hypothesis without chance, a database of
either kind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock, OsClock, RealTime
from podyard.base.rng import Streams
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database
from podyard.testing.server import write_empty_database
from tests import postgresql
from tests.stack import measure_slowness
from tests.waiting import is_measured, slowness

if TYPE_CHECKING:
    from tests.builders import Play
    from tests.yard import Yard

pytest_plugins = ["tests.reports", "tests.retry", "tests.selection"]

settings.register_profile("podyard", derandomize=True, deadline=None)
settings.load_profile("podyard")

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests of whole stacks take turns: two at a time leave each other no time. A pytest in which
    pytest-xdist cannot group them is refused."""
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
                raise pytest.UsageError(
                    f"{item.nodeid} has lost its group: pytest and pytest-xdist do not fit"
                )


def pytest_configure(config: pytest.Config) -> None:
    """Measure how slow the machine is, in the process that starts the workers, unless `make real`
    has measured it."""
    starts_workers = config.getoption("numprocesses", None) is not None and not hasattr(
        config, "workerinput"
    )
    if starts_workers and config.option.markexpr != "not slow" and not is_measured():
        measure_slowness()


def pytest_report_header() -> str:
    return f"slowness of this machine: {slowness():.2f}"


def require(found: str | None, what: str) -> str:
    """`found`, else a skip with its reason; a failure where everything must run
    (PODYARD_TEST_REQUIRE=all)."""
    if found is not None:
        return found
    if os.environ.get("PODYARD_TEST_REQUIRE") == "all":
        pytest.fail(f"{what} is missing, and PODYARD_TEST_REQUIRE=all")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """A private server on a free port, gone with the session."""
    with postgresql.serve(require(postgresql.binaries(), "PostgreSQL")) as url:
        yield url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(scope="session")
def postgresql_schema(postgresql_url: str) -> str:
    """The name of a database at the newest revision, without rows, from which others are copied."""
    name = "schema"
    with contextlib.closing(
        Database(_create_database(postgresql_url, name), OsClock())
    ) as database:
        migrations.upgrade(database)
    return name


def _create_database(server: str, name: str, template: str = "template1") -> str:
    """A new database as a copy of another; its URL."""
    import psycopg

    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return f"{server}/{name}"


class _Tables:
    """A database with the schema and without rows, again and again. Deleting the rows of the test
    before takes a tenth of the time that a copy takes; where a test has changed the schema, or has
    left a lock, the next one gets a copy."""

    _SCHEMA = """SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_constraint),
        (SELECT count(*) FROM pg_attribute WHERE NOT attisdropped), (SELECT max(version_num) FROM alembic_version)"""  # noqa: E501
    _EMPTY = """DO $$ DECLARE it text; BEGIN
        SET LOCAL lock_timeout = '1s';
        SET LOCAL session_replication_role = replica;  -- in any order of the tables
        FOR it IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version' LOOP
            EXECUTE format('DELETE FROM %I', it);
        END LOOP;
        FOR it IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL LOOP
            EXECUTE format('ALTER SEQUENCE %I RESTART', it);
        END LOOP;
        END $$"""  # noqa: E501

    def __init__(self, server: str, schema: str) -> None:
        self._server = server
        self._template = schema
        self._url: str | None = None
        self._schema: object = None

    def take(self) -> str:
        if self._url is None or not self._is_emptied(self._url):
            self._url = _create_database(self._server, "filled", self._template)
            self._schema = self._ask(self._url, self._SCHEMA)
        return self._url

    def _is_emptied(self, url: str) -> bool:
        import psycopg

        try:
            if self._ask(url, self._SCHEMA) != self._schema:
                return False
            self._ask(url, self._EMPTY)
        except psycopg.Error:
            return False
        return True

    @staticmethod
    def _ask(url: str, statement: str) -> object:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchone() if found.description else None


@pytest.fixture(scope="session")
def postgresql_tables(postgresql_url: str, postgresql_schema: str) -> _Tables:
    return _Tables(postgresql_url, postgresql_schema)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty_database(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> Iterator[Database]:
    """A fresh database without a schema."""
    url = f"sqlite:///{tmp_path / 'podyard.db'}"
    if database_kind == "postgresql":
        url = _create_database(request.getfixturevalue("postgresql_url"), "empty")
    with contextlib.closing(Database(url, clock, Streams(0))) as database:
        yield database


@pytest.fixture
def database(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> Iterator[Database]:
    """A fresh database with the schema and a platform clock in system mode."""
    if database_kind == "postgresql":
        url = request.getfixturevalue("postgresql_tables").take()
    else:
        write_empty_database(tmp_path / "podyard.db")
        url = f"sqlite:///{tmp_path / 'podyard.db'}"
    with contextlib.closing(Database(url, clock, Streams(0))) as database:
        database.run(lambda uow: platform_clock.set_up(uow, ClockMode.SYSTEM))
        yield database


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    from tests.builders import Play

    return Play(database, clock)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    from tests.yard import open_yard

    with open_yard(tmp_path) as found:
        yield found
