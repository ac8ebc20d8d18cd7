"""Reading jobs' logs: merged or of one worker, page by page, searched, and from their end.

Attempts follow each other: the next one begins when the last process of the one before is gone.
Within an attempt, each worker's lines have their numbers, and lines of several workers are merged
by their time. A place in a log is therefore an attempt and the number of the next line of each
worker: a line that arrives late is never passed over.
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Iterator, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.log_files import LogFiles
from podyard.db.jobs import logs as job_logs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.log import LogChunk, LogLine, lines_of

PAGE_BYTES_MAX = 4 << 20  # that one page looks at: a search through a large log takes several
CHUNKS_AT_ONCE = 8  # of a worker, in one query
_PLACE = re.compile(r"(\d{1,9}):((?:\d{1,9}\.\d{1,9}(?:,\d{1,9}\.\d{1,9})*)?)")
_FIRST_STACK = "Traceback (most recent call last):"
TRACEBACK_LINES_MAX = 200
LINES_MAX = 2**31 - 1  # no log has as many
# What Python and most programs write of an error, and what Podyard says of an attempt that failed.
_ERROR = re.compile(
    r"Traceback \(most recent call "
    r"last\)|\b(?:ERROR|FATAL|CRITICAL|PANIC)\b|\b\w*(?:Error|Exception)\b: |"
    r"\b(?:error|fatal): |\battempt \d+ failed: "
)
_ERROR_WORDS = (b"error", b"traceback", b"fatal", b"critical", b"panic", b"exception", b"failed: ")
LAST_LINES = 20  # of stderr, where there is no traceback


@dataclasses.dataclass(frozen=True, slots=True)
class LineFilter:
    """`search`: text that a line has, in any case. None, or nothing: all. `errors`: only what looks
    like an error."""

    worker: int | None = None
    attempt: int | None = None
    search: str = ""
    stream: str | None = None
    errors: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether a line is shown, whatever it says."""
        return self.stream is None and not self.search and not self.errors

    def may_show(self, data: bytes) -> bool:
        """Return whether any line of a chunk may be shown: cheaper than to look at each of them."""
        text = data.lower() if self.search or self.errors else b""
        return self.search.lower().encode() in text and (
            not self.errors or any(word in text for word in _ERROR_WORDS)
        )

    def shows(self, line: LogLine) -> bool:
        has_text = not self.search or self.search.lower() in line.line.lower()
        is_meant = not self.errors or _ERROR.search(line.line) is not None
        return has_text and is_meant and self.stream in (None, line.stream)


@dataclasses.dataclass(frozen=True, slots=True)
class LinePage:
    """`place`: where the next page begins; `more`: it has lines, or may have, already now."""

    lines: list[LogLine]
    place: str
    more: bool


class _Worker:
    """The lines of a worker from one on; `place` is the number of the line that comes next."""

    def __init__(
        self, uow: UnitOfWork, files: LogFiles, job_key: str, attempt: int, rank: int, place: int
    ) -> None:
        self._where = (uow, files, job_key, attempt, rank)
        self.rank, self.place, self.bytes = rank, place, 0

    def lines(self, chosen: LineFilter, budget: list[int]) -> Iterator[LogLine]:
        """Those that are chosen, until the budget of bytes is used up. A line is behind `place`
        once the next one is asked for."""
        uow, files, job_key, attempt, rank = self._where
        while budget[0] > 0:
            chunks = job_logs.chunks_from(uow, job_key, attempt, rank, self.place, CHUNKS_AT_ONCE)
            for chunk in chunks:
                if budget[0] <= 0:
                    return
                budget[0] -= max(1, chunk.size)
                data = data_of(files, chunk)
                if chosen.may_show(data):
                    for line in lines_of(chunk, data, self.place):
                        if chosen.shows(line):
                            self.place = line.seq
                            yield line
                self.place = chunk.next_seq
            if not chunks:
                return


def page(
    uow: UnitOfWork, files: LogFiles, job_key: str, chosen: LineFilter, place: str, limit: int
) -> LinePage:
    """At most `limit` lines after a place; "" is the beginning."""
    attempt, places = read_place(place)
    workers = job_logs.workers_of(uow, job_key)
    found: list[LogLine] = []
    budget = [PAGE_BYTES_MAX]
    numbers = [
        number
        for number in sorted(workers)
        if number >= attempt and chosen.attempt in (None, number)
    ]
    for number in numbers:
        if number != attempt:
            attempt, places = number, {}
        ranks = [rank for rank in workers[number] if chosen.worker in (None, rank)]
        readers = [
            _Worker(uow, files, job_key, number, rank, places.get(rank, 0)) for rank in ranks
        ]
        is_whole = _merge(readers, chosen, found, limit, budget)
        places = {reader.rank: reader.place for reader in readers}
        if not is_whole:
            return LinePage(found, place_text(attempt, places), more=True)
    return LinePage(found, place_text(attempt, places), more=False)


def end(uow: UnitOfWork, job_key: str) -> str:
    """The place behind the last line that there is."""
    workers = job_logs.workers_of(uow, job_key)
    attempt = max(workers, default=0)
    places = {}
    for rank in workers.get(attempt, ()):
        (newest,) = job_logs.chunks_before(uow, job_key, attempt, rank, LINES_MAX, 1)
        places[rank] = newest.next_seq
    return place_text(attempt, places)


def tail(
    uow: UnitOfWork, files: LogFiles, job_key: str, chosen: LineFilter, count: int
) -> list[LogLine]:
    """The last lines, `count` of them at most."""
    found: list[LogLine] = []
    workers = job_logs.workers_of(uow, job_key)
    for number in sorted(workers, reverse=True):
        if chosen.attempt not in (None, number) or len(found) >= count:
            continue
        lines: list[LogLine] = []
        for rank in workers[number]:
            if chosen.worker in (None, rank):
                before = (rank, chosen, count - len(found), LINES_MAX)
                lines += last_before(uow, files, job_key, number, *before)[0]
        lines.sort(key=lambda line: (line.at, line.rank, line.seq))
        found = lines[-(count - len(found)) :] + found
    return found


def place_after(lines: Sequence[LogLine]) -> str:
    """The place of a reader who has seen these lines, and none after them."""
    attempt = max((line.attempt for line in lines), default=0)
    return place_text(
        attempt, {line.rank: line.seq + 1 for line in lines if line.attempt == attempt}
    )


def lines_after(lines: Sequence[LogLine], place: str) -> list[LogLine]:
    """Those of `lines` that come after a place."""
    attempt, places = read_place(place)
    return [
        line
        for line in lines
        if line.attempt > attempt
        or (line.attempt == attempt and line.seq >= places.get(line.rank, 0))
    ]


def failure_of(
    uow: UnitOfWork, files: LogFiles, job_key: str, attempt: int
) -> tuple[int, list[str]] | None:
    """(rank, lines): what the worker that ended an attempt wrote last: its traceback, or the end of
    its stderr."""
    said = [
        chunk
        for chunk in job_logs.said_by_platform(uow, job_key, attempt)
        if " failed: " in (chunk.text or "")
    ]
    if not said:
        return None
    rank = said[0].rank
    chosen = LineFilter(worker=rank, attempt=attempt, stream="stderr")
    lines = [line.line for line in tail(uow, files, job_key, chosen, TRACEBACK_LINES_MAX)]
    starts = [index for index, line in enumerate(lines) if line.endswith(_FIRST_STACK)]
    return (rank, lines[starts[0] :] if starts else lines[-LAST_LINES:]) if lines else None


def last_before(  # noqa: PLR0913
    uow: UnitOfWork,
    files: LogFiles,
    job_key: str,
    attempt: int,
    rank: int,
    chosen: LineFilter,
    count: int,
    before: int,
) -> tuple[list[LogLine], int, PlatformTime | None]:
    """(the last `count` lines of a worker before a line, the number from which on lines were looked
    at, None). Where
    the bytes of a page are used up before there are as many: instead of None, since when lines were
    looked at."""
    found: list[LogLine] = []
    reached, left, since = before, PAGE_BYTES_MAX, None
    while len(found) < count and left > 0:
        chunks = job_logs.chunks_before(uow, job_key, attempt, rank, reached, CHUNKS_AT_ONCE)
        for chunk in chunks:
            if len(found) >= count or left <= 0:
                break
            left -= max(1, chunk.size)
            data, first = data_of(files, chunk), chunk.seq
            if chosen.is_plain:
                first = max(first, min(chunk.next_seq, before) - count)
            if chosen.may_show(data):
                lines = (line for line in lines_of(chunk, data, first) if line.seq < before)
                found = [line for line in lines if chosen.shows(line)] + found
            reached, since = chunk.seq, chunk.first_at
        if not chunks:
            reached, since = 0, None
            break
    if len(found) >= count:
        found = found[-count:]
        reached, since = found[0].seq if found else reached, None
    return found, reached, since


def _merge(
    readers: list[_Worker], chosen: LineFilter, found: list[LogLine], limit: int, budget: list[int]
) -> bool:
    """Appends lines by their time; False where the limit or the budget has ended it, and there may
    be more."""
    sources = [reader.lines(chosen, budget) for reader in readers]
    heap: list[tuple[int, int, int]] = []
    waiting: dict[int, LogLine] = {}
    for index, source in enumerate(sources):
        if (line := next(source, None)) is not None:
            waiting[index] = line
            heap.append((line.at.nanos, line.rank, index))
    heapq.heapify(heap)
    while heap and len(found) < limit and budget[0] > 0:
        _, _, index = heapq.heappop(heap)
        found.append(waiting.pop(index))
        if (line := next(sources[index], None)) is not None:
            waiting[index] = line
            heapq.heappush(heap, (line.at.nanos, line.rank, index))
    return not heap and budget[0] > 0


def data_of(files: LogFiles, chunk: LogChunk) -> bytes:
    if chunk.text is not None:
        return chunk.text.encode()
    return files.read(chunk.file, chunk.start, chunk.size)


def is_place(text: str) -> bool:
    return not text or _PLACE.fullmatch(text) is not None


def read_place(text: str) -> tuple[int, dict[int, int]]:
    match = _PLACE.fullmatch(text)
    if match is None:
        return 0, {}
    pairs = (pair.split(".") for pair in match[2].split(",") if pair)
    return int(match[1]), {int(rank): int(number) for rank, number in pairs}


def place_text(attempt: int, places: dict[int, int]) -> str:
    return f"{attempt}:" + ",".join(f"{rank}.{number}" for rank, number in sorted(places.items()))
