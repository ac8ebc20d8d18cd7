"""Opening a log in the middle: at a time, at its first error, at its end, and going back from any
place.

No reader goes through what lies before: the index of chunks says where a time is. Only a search
looks at lines, at most `log_reader.PAGE_BYTES_MAX` of a worker at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum

from podyard.base.clock import PlatformTime
from podyard.base.log_files import LogFiles
from podyard.control.compute import lookup
from podyard.control.jobs import log_reader
from podyard.control.jobs.log_reader import LineFilter, LinePage
from podyard.db.jobs import logs as job_logs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.log import LogLine, lines_of
from podyard.domain.principal import Principal

CONTEXT_LINES = 20  # shown before the first error
ERROR_PAGES_MAX = 16  # 64 MiB of lines that one request looks through for an error


class LogStart(StrEnum):
    """The begin of a range of lines."""

    PLACE = "place"  # after `place`: the beginning, or the page after another one
    BEFORE = "before"  # it ends at `place`
    TIME = "time"  # with the first line of `at`, or after it
    ERROR = "error"  # a few lines before the first error
    END = "end"  # the last lines


@dataclasses.dataclass(frozen=True, slots=True)
class AskedRange:
    """`place`: as pages of a log name it; `at`: with `LogStart.TIME`."""

    start: LogStart = LogStart.PLACE
    place: str = ""
    at: PlatformTime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LogRange:
    """`page` ends where the next range begins, `first` is where it begins itself; `earlier`: there
    may be lines before it. `error`: the line that was looked for; `workers`: those that have
    written anything."""

    page: LinePage
    first: str
    earlier: bool
    error: LogLine | None = None
    workers: Sequence[int] = ()


@dataclasses.dataclass(slots=True)
class _Back:
    """The lines of one worker before a line. `reached`: the lines from this number on have been
    looked at; `since`: what is older than this has not been looked at, for the bytes were used
    up."""

    rank: int
    before: int
    lines: list[LogLine]
    reached: int
    since: PlatformTime | None


def read(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    job_id: str,
    files: LogFiles,
    chosen: LineFilter,
    asked: AskedRange,
    limit: int,
) -> LogRange:
    """At most `limit` lines, in the order of their time."""
    key = lookup.job(uow, principal, "podyard.jobs.get", project, zone, job_id).job_key
    workers = sorted({rank for ranks in job_logs.workers_of(uow, key).values() for rank in ranks})
    return dataclasses.replace(_read(uow, files, key, chosen, asked, limit), workers=workers)


def _read(
    uow: UnitOfWork, files: LogFiles, key: str, chosen: LineFilter, asked: AskedRange, limit: int
) -> LogRange:
    if asked.start is LogStart.BEFORE:
        return _back_from(uow, files, key, chosen, asked.place, limit)
    if asked.start is LogStart.END:
        return _back_from(uow, files, key, chosen, log_reader.end(uow, key), limit)
    if asked.start is LogStart.TIME and asked.at is not None:
        return _from(uow, files, key, chosen, _place_at(uow, files, key, chosen, asked.at), limit)
    if asked.start is LogStart.ERROR:
        return _at_error(uow, files, key, chosen, limit)
    return _from(uow, files, key, chosen, asked.place, limit)


def _from(
    uow: UnitOfWork, files: LogFiles, key: str, chosen: LineFilter, place: str, limit: int
) -> LogRange:
    attempt, places = log_reader.read_place(place)
    earlier = any(places.values()) or any(
        number < attempt for number in job_logs.workers_of(uow, key)
    )
    return LogRange(log_reader.page(uow, files, key, chosen, place, limit), place, earlier)


def _at_error(
    uow: UnitOfWork, files: LogFiles, key: str, chosen: LineFilter, limit: int
) -> LogRange:
    """From a few lines before the first error; where there is none, from the beginning."""
    errors = dataclasses.replace(chosen, errors=True)
    place, found = "", list[LogLine]()
    for _ in range(ERROR_PAGES_MAX):
        page = log_reader.page(uow, files, key, errors, place, 1)
        place, found = page.place, page.lines
        if found or not page.more:
            break
    if not found:
        return _from(uow, files, key, chosen, "", limit)
    (error,) = found
    of_attempt = dataclasses.replace(chosen, attempt=error.attempt)
    attempt, places = log_reader.read_place(_place_at(uow, files, key, of_attempt, error.at))
    at_error = log_reader.place_text(attempt, {**places, error.rank: error.seq})
    before = _back_from(uow, files, key, chosen, at_error, CONTEXT_LINES)
    return dataclasses.replace(_from(uow, files, key, chosen, before.first, limit), error=error)


def _place_at(
    uow: UnitOfWork, files: LogFiles, key: str, chosen: LineFilter, at: PlatformTime
) -> str:
    """Before the first line that was written at this time or after it."""
    workers = job_logs.workers_of(uow, key)
    number, places = 0, dict[int, int]()
    for number in sorted(number for number in workers if chosen.attempt in (None, number)):
        places, is_there = {}, False
        for rank in workers[number]:
            chunk = job_logs.chunk_at(uow, key, number, rank, at)
            if chunk is None:
                places[rank] = _end_of(uow, key, number, rank)
                continue
            is_there = True
            lines = lines_of(chunk, log_reader.data_of(files, chunk), chunk.seq)
            places[rank] = next((line.seq for line in lines if line.at >= at), chunk.next_seq)
        if is_there:
            break
    return log_reader.place_text(number, places)


def _end_of(uow: UnitOfWork, key: str, attempt: int, rank: int) -> int:
    (newest,) = job_logs.chunks_before(uow, key, attempt, rank, log_reader.LINES_MAX, 1)
    return newest.next_seq


def _back_from(
    uow: UnitOfWork, files: LogFiles, key: str, chosen: LineFilter, place: str, limit: int
) -> LogRange:
    """The last lines before a place."""
    attempt, places = log_reader.read_place(place)
    workers = job_logs.workers_of(uow, key)
    found, first, whole = list[LogLine](), place, True
    numbers = sorted(
        (n for n in workers if n <= attempt and chosen.attempt in (None, n)), reverse=True
    )
    for number in numbers:
        if len(found) >= limit or not whole:
            break
        ranks = [rank for rank in workers[number] if chosen.worker in (None, rank)]
        ends = {
            rank: places.get(rank, 0) if number == attempt else _end_of(uow, key, number, rank)
            for rank in ranks
        }
        backs = [
            _back(uow, files, key, number, rank, chosen, limit - len(found), ends[rank])
            for rank in ranks
        ]
        lines, starts = _newest(backs, limit - len(found))
        whole = not any(back.since for back in backs)
        found = lines + found
        first = log_reader.place_text(number, starts)
    number, starts = log_reader.read_place(first)
    earlier = any(starts.values()) or any(n < number for n in numbers)
    return LogRange(LinePage(found, place, more=place != log_reader.end(uow, key)), first, earlier)


def _back(  # noqa: PLR0913
    uow: UnitOfWork,
    files: LogFiles,
    key: str,
    attempt: int,
    rank: int,
    chosen: LineFilter,
    count: int,
    before: int,
) -> _Back:
    lines, reached, since = log_reader.last_before(
        uow, files, key, attempt, rank, chosen, count, before
    )
    return _Back(rank, before, lines, reached, since)


def _newest(backs: Sequence[_Back], count: int) -> tuple[list[LogLine], dict[int, int]]:
    """(the newest lines of all workers, where each worker's begin). Lines that are older than what
    another worker was not looked at for are left for the next range: they may not be the newest."""
    horizon = max(
        ((back.since, back.rank) for back in backs if back.since is not None), default=None
    )
    lines = sorted(
        (line for back in backs for line in back.lines),
        key=lambda line: (line.at, line.rank, line.seq),
    )
    kept = [line for line in lines if horizon is None or (line.at, line.rank) >= horizon][-count:]
    starts = {}
    for back in backs:
        own = [line.seq for line in kept if line.rank == back.rank]
        if len(own) == len(back.lines):
            starts[back.rank] = back.reached
        else:
            starts[back.rank] = own[0] if own else back.lines[-1].seq + 1
    return kept, starts
