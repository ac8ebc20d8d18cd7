"""A log that is opened in the middle: at a time, at its first error, at its end, and backwards from
any place."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from podyard.base.clock import ManualClock, PlatformTime, RealTime
from podyard.control.jobs import log_ranges, log_reader
from podyard.control.jobs.log_ranges import AskedRange, LogRange, LogStart
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.store.unit_of_work import Database
from podyard.domain.log import LogLine, WrittenLines, line_text
from podyard.domain.replica import Replica
from tests.builders import Play, play_of_gang

ALL = LineFilter()


@pytest.fixture
def play(database: Database, clock: ManualClock, tmp_path: Path) -> Play:
    return play_of_gang(database, clock, tmp_path)


def _say(play: Play, replica: Replica, first: int, texts: list[str]) -> None:
    text = "".join(line_text("stdout", number, line) for number, line in enumerate(texts))
    at = RealTime(play.clock.now().nanos)
    play.say(replica, written=WrittenLines(first, len(texts), at, len(texts) - 1, text))


def _fill(play: Play, seed: int, rounds: int = 12) -> None:
    """Chunks of random sizes, of random workers; workers write at the same times, too."""
    chance, replicas = random.Random(seed), play.live()
    told = dict.fromkeys(range(len(replicas)), 0)
    for _ in range(rounds):
        index, count = chance.randrange(len(replicas)), chance.randint(1, 9)
        texts = [
            f"{index}.{told[index] + number} {chance.choice(('loss', 'step', 'save'))}"
            for number in range(count)
        ]
        _say(play, replicas[index], told[index], texts)
        told[index] += count
        play.clock.advance(chance.choice((0, 0.002, 1)))


def _read(
    play: Play, start: LogStart, chosen: LineFilter = ALL, limit: int = 7, **where: object
) -> LogRange:
    asked = AskedRange(start, **where)  # type: ignore[arg-type]
    return play.ask(log_ranges.read, "j", play.files, chosen, asked, limit)


def _forward(play: Play, chosen: LineFilter, limit: int) -> list[LogLine]:
    found, place, more = [], "", True
    while more:
        page = _read(play, LogStart.PLACE, chosen, limit, place=place).page
        found, place, more = [*found, *page.lines], page.place, page.more
    return found


def _backward(play: Play, chosen: LineFilter, limit: int) -> list[LogLine]:
    here = _read(play, LogStart.END, chosen, limit)
    found = here.page.lines
    for _ in range(1000):
        if not here.earlier:
            return found
        here = _read(play, LogStart.BEFORE, chosen, limit, place=here.first)
        found = [*here.page.lines, *found]
    raise AssertionError("it does not come to the beginning")


CHOSEN = (ALL, LineFilter(worker=1), LineFilter(search="LOSS"), LineFilter(stream="platform"))


@pytest.mark.parametrize("bytes_max", [4 << 20, 60], ids=["whole", "little-at-a-time"])
def test_backwards_is_forwards_whatever_the_page(
    play: Play, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    _fill(play, seed=bytes_max)
    everything = _forward(play, ALL, 1000)
    assert len(everything) > 30
    monkeypatch.setattr(log_reader, "PAGE_BYTES_MAX", bytes_max)
    for chosen in CHOSEN:
        wanted = [
            line for line in everything if chosen.worker in (None, line.rank) and chosen.shows(line)
        ]
        assert [_backward(play, chosen, limit) for limit in (1, 7, 1000)] == [wanted] * 3, chosen


def test_it_opens_at_a_time(play: Play) -> None:
    _fill(play, seed=1)
    everything = _forward(play, ALL, 1000)
    for index in (0, 5, len(everything) // 2, len(everything) - 1):
        at = everything[index].at
        here = _read(play, LogStart.TIME, limit=1000, at=at)
        assert here.page.lines == [line for line in everything if line.at >= at]
        assert here.earlier == (everything[0].at < at)
    late = _read(play, LogStart.TIME, at=everything[-1].at.plus_seconds(60))
    assert (late.page.lines, late.earlier) == ([], True)
    early = _read(play, LogStart.TIME, limit=1000, at=PlatformTime(0))
    assert (early.page.lines, early.earlier) == (everything, False)


def test_it_opens_before_the_first_error(play: Play) -> None:
    first, second, *_ = play.live()
    _say(play, first, 0, [f"step {number}, eval_error=0.1" for number in range(50)])
    play.clock.advance(1)
    _say(play, second, 0, ["fine", "ValueError: no such file"])
    play.clock.advance(1)
    _say(play, first, 50, ["Traceback (most recent call last):", "later"])
    here = _read(play, LogStart.ERROR, limit=100)
    assert here.error is not None and here.error.line == "ValueError: no such file"
    shown = [line.line for line in here.page.lines]
    assert shown.index(here.error.line) == log_ranges.CONTEXT_LINES and here.earlier
    assert shown[-2:] == ["Traceback (most recent call last):", "later"]
    none = _read(play, LogStart.ERROR, LineFilter(worker=2))
    assert (none.error, none.page.lines, list(none.workers)) == (None, [], [0, 1])


def test_a_log_without_lines_has_neither_end(play: Play) -> None:
    for start in (LogStart.END, LogStart.ERROR, LogStart.PLACE):
        here = _read(play, start)
        assert (here.page.lines, here.page.more, here.earlier) == ([], False, False)
