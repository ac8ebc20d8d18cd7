"""Machines whose clocks differ by minutes share the time of the database's server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from typing_extensions import override

from podyard.base.clock import ClockMode, OsClock, RealTime
from podyard.db.engines import server_time
from podyard.db.store import leases, platform_clock
from podyard.db.store.leases import Lease
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.loop.steps import Loop
from tests.waiting import until

SKEW_SECONDS = 300.0
NEAR_SECONDS = 1.0


class SkewedClock(OsClock):
    """The clock of a machine that is wrong; it can be set in mid-run, as by a time service."""

    def __init__(self, skew_seconds: float) -> None:
        self.skew_seconds = skew_seconds

    @override
    def now(self) -> RealTime:
        return super().now().plus_seconds(self.skew_seconds)


@pytest.fixture
def url(postgresql_url: str, postgresql_schema: str) -> str:
    with psycopg.connect(f"{postgresql_url}/postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS skewed WITH (FORCE)")
        connection.execute(f'CREATE DATABASE skewed TEMPLATE "{postgresql_schema}"'.encode())
    return f"{postgresql_url}/skewed"


@contextlib.contextmanager
def machine(url: str, skew_seconds: float) -> Iterator[tuple[Database, SkewedClock]]:
    clock = SkewedClock(skew_seconds)
    with contextlib.closing(Database(url, clock, server_time=True)) as database:
        yield database, clock


def test_units_of_machines_with_wrong_clocks_have_one_time(url: str) -> None:
    with machine(url, -SKEW_SECONDS) as (behind, _), machine(url, SKEW_SECONDS) as (ahead, clock):
        for _ in range(3):
            early = behind.run(lambda uow: uow.real_now)
            late = ahead.read(lambda uow: uow.real_now)
            assert abs(late.seconds_since(early)) < NEAR_SECONDS
            clock.skew_seconds -= SKEW_SECONDS  # the clock is set: the next unit does not see it
        assert abs(early.seconds_since(OsClock().now())) < NEAR_SECONDS


def test_without_the_servers_time_the_machines_are_minutes_apart(url: str) -> None:
    """What the test above would find if units went by the machine's clock."""
    with contextlib.closing(Database(url, SkewedClock(SKEW_SECONDS))) as database:
        assert (
            database.run(lambda uow: uow.real_now).seconds_since(OsClock().now())
            > SKEW_SECONDS - NEAR_SECONDS
        )


def test_the_server_is_asked_again_after_a_while_and_after_a_sleep(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine(url, 0.0) as (database, clock):
        database.run(lambda uow: uow.real_now)
        asked: list[object] = []
        monkeypatch.setattr(server_time, "ASK_SECONDS", 3600.0)  # however long this machine takes
        monkeypatch.setattr(server_time.ServerTime, "_ask", _recording(asked))
        database.run(lambda uow: uow.real_now)
        assert asked == []
        monkeypatch.setattr(clock, "suspended_seconds", lambda: 60.0)
        database.run(lambda uow: uow.real_now)
        assert len(asked) == 1
        monkeypatch.setattr(server_time, "ASK_SECONDS", 0.0)
        database.run(lambda uow: uow.real_now)
        assert len(asked) == 2


def _recording(asked: list[object]):  # type: ignore[no-untyped-def]
    ask = server_time.ServerTime._ask

    def recorded(self: server_time.ServerTime, connection: object) -> object:
        asked.append(connection)
        return ask(self, connection)  # type: ignore[arg-type]

    return recorded


def _acquire(database: Database, owner: str, seconds: float) -> Lease | None:
    return database.run(lambda uow: leases.acquire(uow, leases.LOOP_LEADER, owner, seconds))


@pytest.mark.parametrize(
    ("first", "second"), [(SKEW_SECONDS, -SKEW_SECONDS), (-SKEW_SECONDS, SKEW_SECONDS)]
)
def test_a_lease_is_neither_taken_early_nor_held_for_minutes(
    url: str, first: float, second: float
) -> None:
    with machine(url, first) as (one, _), machine(url, second) as (two, _):
        held = _acquire(one, "one", 1.0)
        assert held is not None
        assert _acquire(two, "two", 1.0) is None  # a clock that is ahead does not end it
        taken = until(lambda: _acquire(two, "two", 60.0), 10, "the lease of the dead owner")
        assert taken.fence == held.fence + 1
        assert _acquire(one, "one", 60.0) is None


@pytest.mark.parametrize("skew", [SKEW_SECONDS, -SKEW_SECONDS])
def test_platform_time_goes_on_when_a_loop_with_a_wrong_clock_takes_over(
    url: str, skew: float
) -> None:
    with machine(url, 0.0) as (one, clock), machine(url, skew) as (two, wrong):
        one.run(lambda uow: platform_clock.set_up(uow, ClockMode.LOCAL))
        loops = [
            Loop(d, instant_fleet(), lambda *_: None, c, n)
            for d, c, n in [(one, clock, "1"), (two, wrong, "2")]
        ]
        assert loops[0].round()
        assert not loops[1].round()
        began = two.read(lambda uow: uow.now)
        until(lambda: loops[1].round() or None, 15, "the other loop")
        fence = loops[1].fence
        assert fence == 2
        watching = loops[1].watching_since
        assert watching is not None
        # Silence of agents and replicas is counted from here, against times that other processes
        # have written.
        assert abs(watching.seconds_since(OsClock().now())) < NEAR_SECONDS
        moved = one.read(lambda uow: uow.now).seconds_since(began)
        assert 0 <= moved < 5
