"""A loop that has nothing to do looks once a second, once in ten while nothing is alive, and at
once when anything is committed or due."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import pytest

from podyard.base.clock import ClockMode, ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.control.compute import nodes
from podyard.db.store import outbox, platform_clock, timers
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.principal import PLATFORM
from podyard.loop.steps import ANCHOR_AT_REST_SECONDS, SEND_SECONDS_MAX, Loop
from tests.builders import PROJECT, ZONE, Play, node_spec, request

TICK_SECONDS = 0.1


class _Counted(Loop):
    looks = 0

    def walk(self) -> None:
        self.looks += 1
        super().walk()

    def looks_in(self, clock: ManualClock, seconds: float) -> int:
        before = self.looks
        for _ in range(round(seconds / TICK_SECONDS)):
            clock.advance(TICK_SECONDS)
            self.round()
        return self.looks - before


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


@pytest.fixture
def loop(play: Play) -> _Counted:
    play.loop.stop()
    loop = _Counted(play.database, play.fleet, lambda *_: None, play.clock, "counted")
    loop.looks_in(play.clock, 2)
    return loop


@contextlib.contextmanager
def _other_process(play: Play) -> Iterator[Database]:
    with contextlib.closing(Database(play.database.url, play.clock)) as database:
        yield database


def _create(play: Play, database: Database) -> None:
    database.run(
        lambda uow: nodes.create(uow, play.fleet, PLATFORM, PROJECT, ZONE, "n", node_spec())
    )


def test_looks_once_a_second(play: Play, loop: _Counted) -> None:
    looks = loop.looks_in(play.clock, 10)
    assert 10 <= looks <= 12 if play.database.is_sqlite else looks == 100


@pytest.fixture
def local(play: Play, loop: _Counted) -> _Counted:
    """The loop on a local clock, where nothing is alive."""
    play.database.run(
        lambda uow: platform_clock.write(uow, dataclasses.replace(uow.clock, mode=ClockMode.LOCAL))
    )
    loop.looks_in(play.clock, 2)
    return loop


def test_looks_once_in_ten_seconds_while_nothing_is_alive(play: Play, local: _Counted) -> None:
    looks = local.looks_in(play.clock, 30)
    assert 3 <= looks <= 4 if play.database.is_sqlite else looks == 300


def _let_a_message_wait(play: Play) -> None:
    play.database.run(lambda uow: outbox.put(uow, "background", "none", []))


def _let_a_queued_resource_wait(play: Play) -> None:
    for name in ("one", "two"):  # the zone has room for one
        play.queue(request(f"{name}-n", kind="v2-32"), name)


@pytest.mark.parametrize("let_wait", [_let_a_message_wait, _let_a_queued_resource_wait])
def test_looks_once_a_second_while_anything_is_alive(
    play: Play, local: _Counted, let_wait: Callable[[Play], None]
) -> None:
    def is_away(*_: object) -> None:
        raise PodyardError(Code.UNAVAILABLE, "the broker is away")

    local.send_message = is_away
    let_wait(play)
    local.looks_in(play.clock, 60)
    assert local.looks_in(play.clock, 10) >= 10


def test_a_commit_of_another_process_ends_the_rest(play: Play) -> None:
    def write(uow: UnitOfWork) -> None:
        timers.put(uow, "node.none", "none", 0, uow.now.plus_seconds(3600))

    with _other_process(play) as other, play.database.listen() as pokes:
        if pokes is None:
            assert not play.database.is_sqlite
            return
        play.database.run(write)
        pokes.wait(0)  # the poke of a unit before, if it came only now
        play.database.run(write)
        assert not pokes.wait(0.05)
        other.run(write)
        assert pokes.wait(10)
        assert not pokes.wait(0)
    other = Database(play.database.url, play.clock)  # nobody listens any more
    other.run(write)
    other.close()


def test_stays_the_leader_and_keeps_the_clock_going(play: Play, loop: _Counted) -> None:
    before = play.database.read(lambda uow: uow.now)
    loop.looks_in(play.clock, 10)
    assert play.database.read(lambda uow: uow.now).seconds_since(before) == pytest.approx(10)


def test_what_another_process_commits_is_seen_in_the_next_round(play: Play, loop: _Counted) -> None:
    with _other_process(play) as other:
        for ticks in range(7):  # at each place between two anchors and two looks
            loop.looks_in(play.clock, ticks * TICK_SECONDS)
            other.run(
                lambda uow: timers.put(uow, "node.none", "none", 0, uow.now.plus_seconds(3600))
            )
            assert loop.looks_in(play.clock, TICK_SECONDS) == 1


def test_what_is_committed_next_to_an_anchor_is_seen(
    play: Play, loop: _Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process commits just before the anchor's unit, when the loop has already looked at
    the version."""
    while not loop.looks_in(play.clock, TICK_SECONDS):
        pass  # from here on, an idle loop would not look for a second
    before, run = loop.looks, play.database.run
    with _other_process(play) as other:

        def late(body: object, **options: object) -> object:
            monkeypatch.undo()
            _create(play, other)
            return run(body, **options)  # type: ignore[arg-type]

        play.clock.advance(ANCHOR_AT_REST_SECONDS)
        monkeypatch.setattr(play.database, "run", late)
        loop.round()
    assert loop.looks > before


@pytest.mark.parametrize("clock_of", ["loop", "local"])
def test_a_timer_fires_when_it_is_due(
    play: Play, clock_of: str, request: pytest.FixtureRequest
) -> None:
    loop: _Counted = request.getfixturevalue(clock_of)
    with _other_process(play) as other:
        _create(play, other)
    loop.looks_in(play.clock, 9.9)
    assert play.node().state == "CREATING"
    loop.looks_in(play.clock, 0.3)
    assert play.node().state == "READY"


def test_a_virtual_clock_is_followed_in_each_round(play: Play, loop: _Counted) -> None:
    play.database.run(
        lambda uow: platform_clock.write(
            uow, dataclasses.replace(uow.clock, mode=ClockMode.VIRTUAL)
        )
    )
    assert loop.looks_in(play.clock, 1) == 10


def test_a_round_sends_batch_after_batch_and_leaves_time_for_the_lease(
    play: Play, local: _Counted
) -> None:
    count = 2 * outbox.OUTBOX_BATCH_MAX + 50
    sent: list[str] = []

    def note(queue: str, task: str, args: Sequence[str]) -> None:
        assert (queue, task) == ("background", "none")
        sent.append(args[0])

    local.send_message = note

    def put(uow: UnitOfWork) -> None:
        for number in range(count):
            outbox.put(uow, "background", "none", [str(number)])

    play.database.run(put)
    local.send()
    assert sent == [str(number) for number in range(count)]
    assert play.database.read(outbox.list_unsent) == []

    def slowly(queue: str, task: str, args: Sequence[str]) -> None:
        note(queue, task, args)
        play.clock.advance(2 * SEND_SECONDS_MAX / outbox.OUTBOX_BATCH_MAX)

    sent.clear()
    local.send_message = slowly
    play.database.run(put)
    local.send()
    assert len(sent) == outbox.OUTBOX_BATCH_MAX, "the rest has its turn in the next round"
