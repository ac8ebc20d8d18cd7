"""A closing is computed in a read and written in a short unit: it never goes by what has changed in
between, holds up nobody, and issues one invoice with any number of closers; on both databases."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text

from podyard.base.clock import ClockMode, ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import accounts, closing, commitments, invoices
from podyard.control.compute import nodes
from podyard.control.platform import clock as clock_control
from podyard.db.billing import invoice_records
from podyard.db.store import leases, platform_clock
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import leases as leases_table
from podyard.db.tables.billing import invoice_records as table_of_records
from podyard.db.tables.billing import invoices as table_of_invoices
from podyard.db.tables.billing import ledger_transactions, usage_events
from podyard.domain.principal import PLATFORM
from podyard.http import several_units
from podyard.pricing.current_card import default_rate_card
from tests.builders import PROJECT, Play, node_spec
from tests.surfaces import check_books, check_month

DAY = 86_400
CARD = default_rate_card()
Change = Callable[[Play], None]


def _stop(play: Play) -> None:
    play.late_event("STOPPED", "2026-03-31T12:00:00Z")


def _stop_at_the_very_end(play: Play) -> None:
    play.late_event("STOPPED", "2026-04-01T00:00:00Z")


def _tax(play: Play) -> None:
    play.database.run(lambda uow: accounts.patch(uow, PLATFORM, PROJECT, {"tax": "0.1"}))


def _credit(play: Play) -> None:
    play.database.run(
        lambda uow: commitments.add_credit(uow, PLATFORM, PROJECT, "1", None, "2026-03", "")
    )


def _close(play: Play, month: str = "2026-03") -> Any:
    return several_units.close(play.database, CARD, PLATFORM, PROJECT, month)


def _between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> list[int]:
    """Does something after a bill was computed and before it is written; how often there was a
    computation."""
    compute, computed = invoices.compute, [0]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        found = compute(*arguments, **options)
        computed[0] += 1
        if computed[0] <= times:
            act()
        return found

    monkeypatch.setattr(invoices, "compute", wrapped)
    return computed


def _count(play: Play, table: Any) -> Any:
    return play.database.read(
        lambda uow: uow.execute(select(func.count()).select_from(table)).scalar()
    )


@pytest.mark.parametrize(
    ("change", "total"),
    [
        (_stop, "3293.99"),
        (_stop_at_the_very_end, "3347.99"),
        (_tax, "3682.79"),
        (_credit, "3346.99"),
    ],
)
@pytest.mark.parametrize("by", ["hand", "loop"])
def test_what_changes_between_computing_and_writing_is_in_the_invoice(
    play: Play,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    change: Change,
    total: str,
) -> None:
    play.create("n")
    clock.advance(31 * DAY)
    computed = _between(monkeypatch, lambda: change(play))
    if by == "hand":
        _close(play)
    else:
        play.loop.round()
    assert computed == [2]
    (row,) = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    monkeypatch.undo()
    assert play.database.read(lambda uow: invoices.is_reproduced(uow, CARD, row))
    found = json.loads(row.document)
    assert found["total"] == total
    assert _count(play, ledger_transactions) == 1


def test_usage_after_the_month_does_not_make_a_bill_outdated(
    play: Play, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.create("n")
    clock.advance(31 * DAY)
    computed = _between(
        monkeypatch, lambda: play.late_event("STOPPED", "2026-04-01T00:00:00.000000001Z")
    )
    row = _close(play)
    assert computed == [1]
    monkeypatch.undo()
    assert play.database.read(lambda uow: invoices.is_reproduced(uow, CARD, row))


def test_who_meets_changes_too_often_says_so_and_writes_nothing(
    play: Play, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.create("n")
    clock.advance(31 * DAY)
    computed = _between(monkeypatch, lambda: _credit(play), times=100)
    with pytest.raises(PodyardError, match="2026-03 was computed") as raised:
        _close(play)
    assert raised.value.code is Code.ABORTED
    assert computed == [closing.CLOSE_TRIES_MAX]
    play.loop.round()
    assert computed == [2 * closing.CLOSE_TRIES_MAX]  # and in this round no more
    assert _count(play, table_of_invoices) == _count(play, ledger_transactions) == 0
    monkeypatch.undo()
    play.turn(closing.PUT_OFF_SECONDS)
    assert _count(play, table_of_invoices) == 1


class _Slow:
    """Bills that take until they are told to be done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        prepare = closing.prepare_due

        def slowly(uow: UnitOfWork, project: str, known_seq: int) -> Any:
            found = prepare(uow, project, known_seq)
            self.begun.set()
            assert self.may_end.wait(60)
            return found

        monkeypatch.setattr(closing, "prepare_due", slowly)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Slow]:
    found = _Slow(monkeypatch)
    yield found
    found.may_end.set()


class _Running(ManualClock):
    """A clock whose monotonic time passes while it is looked at, so that patience ends."""

    def monotonic_seconds(self) -> float:
        self.advance(0.05)
        return super().monotonic_seconds()


def _impatient(play: Play, clock: ManualClock) -> None:
    running = _Running(clock.now())
    play.loop._closings._clock = running


def test_the_loop_goes_on_while_a_bill_is_computed(
    play: Play, clock: ManualClock, slow: _Slow
) -> None:
    play.create("n")
    _impatient(play, clock)
    clock.advance(31 * DAY)
    play.loop.round()
    assert slow.begun.wait(10)
    play.run(nodes.create, "m", node_spec())
    for _ in range(12):
        clock.advance(1)
        assert play.loop.round()
    # its timer was due after that of the invoice
    assert play.states() == {"n": "READY", "m": "READY"}
    (lease,) = play.database.read(
        lambda uow: uow.all(select(leases_table).where(leases_table.c.name == leases.LOOP_LEADER))
    )
    assert lease["until"] > clock.now()
    assert _count(play, table_of_invoices) == 0
    slow.may_end.set()
    play.loop._closings._clock = clock  # patient again
    play.turn(2)
    assert _count(play, table_of_invoices) == 1


def test_a_walk_of_a_virtual_clock_waits_for_the_bill(
    play: Play, clock: ManualClock, slow: _Slow
) -> None:
    play.database.run(lambda uow: platform_clock.set_up(uow, ClockMode.VIRTUAL))
    play.loop.round()
    play.run(nodes.create, "n", node_spec())
    play.loop.round()
    _impatient(play, clock)
    play.database.run(lambda uow: clock_control.advance(uow, PLATFORM, by_nanos=70 * DAY * 10**9))
    for _ in range(5):
        play.loop.round()
    now = play.database.read(lambda uow: uow.now)
    assert now <= PlatformTime.from_rfc3339("2026-04-01T00:00:00Z")
    slow.may_end.set()
    play.loop._closings._clock = clock
    for _ in range(10):
        play.loop.round()
    rows = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    assert [(row.month, row.issued_at.rfc3339()) for row in rows] == [
        ("2026-03", "2026-04-01T00:00:00Z"),
        ("2026-04", "2026-05-01T00:00:00Z"),
    ]


def test_while_a_bill_is_computed_others_write(play: Play, clock: ManualClock, slow: _Slow) -> None:
    play.create("n")
    clock.advance(31 * DAY)
    with ThreadPoolExecutor(1) as pool:
        closed = pool.submit(play.loop.round)
        assert slow.begun.wait(60)
        _credit(play)  # nobody holds the writer
        slow.may_end.set()
        assert closed.result()
    (row,) = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    assert row.total == 334_699


def test_two_who_close_at_once_issue_one_invoice(
    play: Play, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.create("n")
    clock.advance(31 * DAY)
    together = threading.Barrier(2)

    def both_have_computed() -> None:
        together.wait(60)

    _between(monkeypatch, both_have_computed, times=2)
    with ThreadPoolExecutor(2) as pool:
        first, second = (found.result() for found in [pool.submit(_close, play) for _ in range(2)])
    assert first == second
    assert first.total == 334_799
    assert _count(play, table_of_invoices) == _count(play, ledger_transactions) == 1


def test_six_who_close_twice_at_once_issue_one_invoice(play: Play, clock: ManualClock) -> None:
    play.create("n")
    clock.advance(31 * DAY)
    together = threading.Barrier(6)

    def client() -> list[Any]:
        found = []
        for _ in range(2):
            together.wait(60)
            found.append(_close(play))
        return found

    with ThreadPoolExecutor(6) as pool:
        answers = [
            one for closed in [pool.submit(client) for _ in range(6)] for one in closed.result()
        ]
    assert len(answers) == 12
    assert all(one == answers[0] for one in answers)
    assert answers[0].total == 334_799
    assert _count(play, table_of_invoices) == _count(play, ledger_transactions) == 1
    chunks = play.database.read(lambda uow: invoice_records.chunks_of(uow, PROJECT, "2026-03"))
    assert len(chunks) == _count(play, table_of_records)
    check_month(play.database, CARD, PROJECT, "2026-03")
    check_books(play.database, play.fleet, CARD)


# SQLite has one writer: its events come in the order of their numbers.
@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_on_postgresql_an_event_that_has_its_number_and_is_not_committed_is_waited_for(
    play: Play, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.create("n")
    play.create("m")
    clock.advance(31 * DAY)
    rows = play.database.read(
        lambda uow: uow.all(select(usage_events).order_by(usage_events.c.seq))
    )
    late = {**rows[1], "event_id": "slow", "resource_seq": 99, "state": "STOPPED"}
    late["at"] = PlatformTime.from_rfc3339("2026-03-31T12:00:00Z")
    del late["seq"]
    computed = _between(monkeypatch, lambda: None)
    with play.database.engine.connect() as slow, ThreadPoolExecutor(1) as pool:
        slow.execute(insert(usage_events).values(**late))  # its number is taken, and nobody sees it
        # of the other node, that is READY: it changes nothing
        play.late_event("READY", "2026-03-31T13:00:00Z")
        closed = pool.submit(_close, play)
        waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareLock'")
        while not play.database.read(lambda uow: uow.execute(waits).scalar()):
            assert not closed.done()
        slow.commit()
        found = closed.result()
    assert computed == [1]
    assert found.total == 664_196  # 2,635,190 s and 2,678,380 s at 4.50 an hour
    assert play.database.read(lambda uow: invoices.is_reproduced(uow, CARD, found))
