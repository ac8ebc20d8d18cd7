"""A kept bill is made once for all readers, and what was kept by others is never used for an
earlier moment; on
both databases."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import select

from podyard.base.clock import ManualClock, PlatformTime
from podyard.control.billing import accounts, bills, kept_bills, snapshots
from podyard.control.billing.kept_bills import Behind
from podyard.control.compute import nodes
from podyard.db.billing import usage_events as event_rows
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.billing import usage_events
from podyard.domain.principal import PLATFORM
from podyard.http.context import Platform
from podyard.http.several_units import read_snapshot
from podyard.pricing import bill
from podyard.pricing.bill import Resource, resource_of
from podyard.pricing.current_card import default_rate_card
from podyard.settings import from_environment
from podyard.web.billing import ahead as billing_ahead
from tests.builders import PROJECT, Play

CARD = default_rate_card()


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    found = Play(database, clock)
    for name in ("a", "b", "c"):
        found.create(name)
    found.turn(100)
    found.run(nodes.delete, "b")
    found.turn()
    return found


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The resources that were metered from their events, in order."""
    found: list[str] = []
    real = bill.use_of

    def counted(resource: Resource, *rest: Any) -> Any:
        found.append(resource.resource_id)
        return real(resource, *rest)

    monkeypatch.setattr(bill, "use_of", counted)
    return found


def _snapshot(uow: UnitOfWork) -> snapshots.Snapshot:
    return snapshots.snapshot(uow, default_rate_card(), PLATFORM, PROJECT)


def _same_as_all(uow: UnitOfWork, found: snapshots.Snapshot) -> None:
    resources = {
        key: resource_of(CARD, node) for key, node in event_rows.facts(uow, PROJECT).items()
    }
    terms = bills.terms_of(uow, accounts.of(uow, PROJECT))
    whole = bills.compute(uow, [PROJECT], resources, terms, uow.now)
    by_time = sorted(
        [*found.closed, *found.open], key=lambda record: (record.resource_id, record.start_second)
    )
    assert by_time == sorted(
        whole.records, key=lambda record: (record.resource_id, record.start_second)
    )
    assert found.seconds == whole.seconds and found.open_since == whole.open_since


def test_two_who_ask_at_once_meter_once(
    play: Play, metered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first is in the middle of it."""
    monkeypatch.setattr(kept_bills, "PACE_EVENTS", 1)
    asked, told, found = threading.Event(), [], []
    real = kept_bills._Turn.take

    def taken(turn: Any) -> Any:
        if threading.current_thread() is other:
            asked.set()
        return real(turn)

    def pace(wanted: bool) -> None:
        told.append(wanted)
        if len(told) == 1:
            other.start()
            assert asked.wait(30)
            while not turn_of().waiting:
                pass  # it is about to wait

    def turn_of() -> Any:
        (shelf,) = kept_bills._shelves.values()
        return shelf.turn(PROJECT)

    kept_bills._shelves.clear()
    monkeypatch.setattr(kept_bills._Turn, "take", taken)
    other = threading.Thread(target=lambda: found.append(play.database.read(_current)))
    mine = play.database.read(lambda uow: kept_bills.current(uow, CARD, PROJECT, pace))
    other.join(30)
    assert len(metered) == 3 and len(set(metered)) == 3
    assert found == [mine] and found[0] is mine
    assert told == [False, True, True], "the maker is told that a reader waits"


def _current(uow: UnitOfWork) -> kept_bills.Kept:
    return kept_bills.current(uow, CARD, PROJECT)


@pytest.mark.slow
def test_what_is_in_use_is_drawn_out_and_not_metered_again(play: Play, metered: list[str]) -> None:
    play.database.read(_snapshot)
    assert len(metered) == 3
    for seconds in (0, 0.25, 0.75, 3600.5, 86_400):
        play.turn(seconds)
        play.database.read(lambda uow: _same_as_all(uow, _snapshot(uow)))
    assert len(metered) == 3
    play.late_event("STOPPED", play.database.read(lambda uow: uow.now.rfc3339()), "a")
    play.turn(0.125)
    play.late_event("READY", play.database.read(lambda uow: uow.now.rfc3339()), "a")
    for seconds in (0, 0.25, 60):
        play.turn(seconds)
        play.database.read(lambda uow: _same_as_all(uow, _snapshot(uow)))
    assert len(metered) == 4, "of all, only the one with new events"


def test_times_that_run_backwards_are_clamped_as_everywhere(play: Play) -> None:
    play.late_event("STOPPED", "2026-03-01T00:00:01Z", "a")
    play.database.read(lambda uow: _same_as_all(uow, _snapshot(uow)))


def test_an_event_of_a_clock_that_is_ahead_counts_once_its_time_has_come(play: Play) -> None:
    ahead = play.database.read(lambda uow: uow.now).plus_seconds(30)
    play.late_event("STOPPED", ahead.rfc3339(), "a")
    assert len(play.database.read(_snapshot).open_since) == 2
    play.turn(20)
    assert len(play.database.read(_snapshot).open_since) == 2
    play.turn(20)
    assert len(play.database.read(_snapshot).open_since) == 1
    play.database.read(lambda uow: _same_as_all(uow, _snapshot(uow)))


def test_who_reads_an_earlier_moment_than_what_is_kept_begins_anew(
    play: Play, metered: list[str]
) -> None:
    """While one read is under way, another one sees a later event and keeps the bill with it."""
    reads = []

    def body(uow: UnitOfWork) -> snapshots.Snapshot:
        began = uow.now
        reads.append(began)
        uow.execute(select(usage_events.c.seq).limit(1))  # from here on it sees this moment
        if len(reads) == 1:
            play.late_event("STOPPED", began.rfc3339(), "a")
            play.database.read(_snapshot)
        return _snapshot(uow)

    found = read_snapshot(play.database, body)
    assert len(reads) == 2 and len(found.open_since) == 1 and len(metered) == 3
    with pytest.raises(Behind):
        reads.clear()
        play.database.read(body)


def test_a_clock_that_has_gone_back_gets_a_bill_of_its_own_moment(
    play: Play, metered: list[str]
) -> None:
    later = play.database.read(_snapshot).as_of
    earlier = PlatformTime(later.nanos - 50 * 10**9)
    found = read_snapshot(play.database, lambda uow: _snapshot(uow.at(earlier)))
    assert found.as_of == earlier and len(metered) == 6


def test_sums_are_made_once_and_a_failure_is_not_kept(play: Play) -> None:
    found = play.database.read(_snapshot)
    going, may_end, made = threading.Event(), threading.Event(), []

    def slow() -> int:
        going.set()
        assert may_end.wait(30)
        return 7

    threads = [
        threading.Thread(target=lambda: made.append(found.keep("k", slow))) for _ in range(2)
    ]
    threads[0].start()
    assert going.wait(30)
    going.clear()
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(30)
    assert made == [7, 7] and not going.is_set()
    with pytest.raises(ZeroDivisionError):
        found.keep("bad", lambda: 1 // 0)
    assert found.keep("bad", lambda: 3) == 3


@pytest.fixture
def app(play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FastAPI:
    """One whose bills are all large enough to be made ahead, resource by resource, at once."""
    monkeypatch.setattr(billing_ahead, "EVENTS_LEAST", 1)
    monkeypatch.setattr(billing_ahead, "START_SECONDS", 0.0)
    monkeypatch.setattr(kept_bills, "PACE_EVENTS", 1)
    kept_bills._shelves.clear()
    made = FastAPI()
    settings = from_environment({"PODYARD_DATA": str(tmp_path)})
    made.state.platform = Platform(settings, play.database, play.fleet, play.clock)
    return made


def test_the_largest_projects_bills_are_made_ahead_of_the_first_page(
    app: FastAPI, play: Play, metered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    billing_ahead.make_all(app.state.platform, lambda _: None)
    assert len(metered) == 3
    play.database.read(_snapshot)
    assert len(metered) == 3, "it was there"
    kept_bills._shelves.clear()
    monkeypatch.setattr(billing_ahead, "EVENTS_LEAST", 1_000)
    billing_ahead.make_all(app.state.platform, lambda _: None)
    assert len(metered) == 3, "a small one is made when it is asked for"


def test_it_ends_with_the_application_and_when_its_time_is_up(
    app: FastAPI, play: Play, metered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def pace(_wanted: bool) -> None:
        begun.set()
        assert ended.wait(30)

    real = billing_ahead.make_all

    def before_each(act: Any) -> None:
        wrapped = lambda platform, own: real(platform, lambda wanted: (act(wanted), own(wanted)))  # noqa: E731
        monkeypatch.setattr(billing_ahead, "make_all", wrapped)

    before_each(pace)

    async def live() -> list[threading.Thread]:
        async with billing_ahead.running(app):
            assert begun.wait(30)
            return [thread for thread in threading.enumerate() if thread.name == "podyard-bills"]

    monkeypatch.setattr(billing_ahead, "END_SECONDS_MAX", 0.01)
    (thread,) = asyncio.run(live())
    ended.set()
    thread.join(30)
    assert not thread.is_alive()
    assert metered == [], "it ended at the first breath"
    before_each(lambda _: play.clock.advance(billing_ahead.SECONDS_MAX + 1))
    billing_ahead._work(app.state.platform, threading.Event(), lambda: False)
    assert metered == [], "time was up"


class _Pauses(threading.Event):
    """Counts the pauses of who waits for the end, and takes no time for them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        return self.is_set()


def test_it_breathes_for_as_long_as_requests_are_answered_within_limits(
    app: FastAPI, metered: list[str]
) -> None:
    idle, busy, short = _Pauses(), _Pauses(), _Pauses()
    billing_ahead._work(app.state.platform, idle, lambda: False)
    kept_bills._shelves.clear()
    billing_ahead._work(app.state.platform, busy, lambda: True)
    kept_bills._shelves.clear()
    billing_ahead._work(app.state.platform, short, lambda: short.count % 2 == 0)
    assert len(metered) == 9, "each of them has made all three"
    assert busy.count - 1 == billing_ahead.BREATHS_MAX * (idle.count - 1)
    assert idle.count < short.count < busy.count, "it goes on as soon as nothing is asked"


def test_who_need_not_wait_is_told_that_a_bill_is_made_for_the_first_time(play: Play) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(_wanted: bool) -> None:
        begun.set()
        assert may_end.wait(30)

    def make() -> threading.Thread:
        body = lambda uow: kept_bills.current(uow, CARD, PROJECT, slow)  # noqa: E731
        maker = threading.Thread(target=lambda: play.database.read(body))
        maker.start()
        assert begun.wait(30)
        return maker

    def is_first_made() -> bool:
        return play.database.read(lambda uow: snapshots.is_first_made(uow, PROJECT))

    kept_bills._shelves.clear()
    assert not is_first_made(), "nobody makes it"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_bills, "PACE_EVENTS", 1)
        maker = make()
        assert is_first_made()
        may_end.set()
        maker.join(30)
        assert not is_first_made()
        play.create("later")
        for event in (begun, may_end):
            event.clear()
        maker = make()
        assert not is_first_made(), "made again: what was kept before is shown"
        may_end.set()
        maker.join(30)
