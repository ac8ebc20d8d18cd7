"""Keeping the lines of jobs' logs. Their times are platform time, as all times of a job are.

A report brings lines as one chunk of text, which is appended to a file as it is: its bytes are
looked at when they are read. The row of a chunk says where it is.
"""

from __future__ import annotations

import dataclasses
import logging

from podyard.base.clock import RATE_ONE, ClockMode, PlatformTime, RealTime
from podyard.base.log_files import LogFiles
from podyard.db.jobs import attempts
from podyard.db.jobs import logs as job_logs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.log import LINE_CHARACTERS_MAX, LogChunk, WrittenLines, line_text
from podyard.domain.replica import Replica

SEGMENT_BYTES = 16 << 20
SEGMENTS_MAX = 8  # of a worker in one attempt: 128 MiB; the oldest goes when there is one more

logger = logging.getLogger(__name__)


def keep(uow: UnitOfWork, files: LogFiles, replica: Replica, written: WrittenLines | None) -> int:
    """Keeps what a replica has written, each line once; returns the number of the line that is
    expected next. Where the disk takes no more, that is the same as before, and the replica sends
    the lines again."""
    newest = job_logs.newest(uow, replica.replica_id)
    expected = 0 if newest is None else newest.next_seq
    fresh = None if written is None else _after(written, expected)
    if fresh is None:
        return expected
    data = fresh.text.encode()
    segment, start = (0, 0) if newest is None else (newest.segment, newest.start + newest.size)
    if start and start + len(data) > SEGMENT_BYTES:
        segment, start = segment + 1, 0
    begin = attempts.get(uow, replica.attempt_id).started if newest is None else newest.last_at
    # lines stay in the order in which they were written
    first_at = max(begin, _platform_time(uow, fresh.at))
    last_at = max(first_at, _platform_time(uow, fresh.at.plus_seconds(fresh.millis / 1000)))
    chunk = LogChunk(
        replica_id=replica.replica_id,
        seq=fresh.seq,
        job_key=replica.job_key,
        attempt=replica.fence,
        rank=replica.rank,
        lines=fresh.lines,
        first_at=first_at,
        last_at=last_at,
        millis=fresh.millis,
        segment=segment,
        start=start,
        size=len(data),
    )
    try:
        files.write(chunk.file, start, data)
    except OSError as error:
        logger.warning("lines of %s cannot be written: %s", chunk.file, error)
        return expected
    job_logs.add(uow, chunk)
    if newest is not None and segment > newest.segment and segment >= SEGMENTS_MAX:
        _rotate(uow, files, chunk, segment - SEGMENTS_MAX)
    return chunk.next_seq


def add(uow: UnitOfWork, replica: Replica, line: str) -> None:
    """Adds a line of the platform's own to the log of a replica that writes no more."""
    newest = job_logs.newest(uow, replica.replica_id)
    at = uow.now if newest is None else max(newest.last_at, uow.now)
    chunk = LogChunk(
        replica_id=replica.replica_id,
        seq=0 if newest is None else newest.next_seq,
        job_key=replica.job_key,
        attempt=replica.fence,
        rank=replica.rank,
        lines=1,
        first_at=at,
        last_at=at,
        millis=0,
        segment=0 if newest is None else newest.segment,
        start=0 if newest is None else newest.start + newest.size,
        text=line_text("platform", 0, _one_line(line)),
    )
    job_logs.add(uow, chunk)


def _one_line(line: str) -> str:
    return line.replace("\n", " ").replace("\0", "\ufffd")[:LINE_CHARACTERS_MAX]


def _after(written: WrittenLines, expected: int) -> WrittenLines | None:
    """The lines from number `expected` on; those before it have been kept. None: there are none, or
    some are missing before them."""
    before = expected - written.seq
    if before < 0 or before >= written.lines:
        return None
    if not before:
        return written
    text = written.text.split("\n", before)[before]
    return dataclasses.replace(written, seq=expected, lines=written.lines - before, text=text)


def _rotate(uow: UnitOfWork, files: LogFiles, chunk: LogChunk, until: int) -> None:
    """Removes the segments until `until`; a line in their place says so."""
    removed = job_logs.remove_until(uow, chunk.replica_id, until)
    if not removed:
        return
    last = removed[-1]
    for name in {old.file for old in removed}:
        files.remove(name)
    kept = SEGMENTS_MAX * SEGMENT_BYTES >> 20
    text = (
        f"the first {last.next_seq:,} lines were removed: a worker's log keeps {kept} MiB "
        "in one attempt"
    )
    notice = dataclasses.replace(
        last, seq=last.next_seq - 1, lines=1, first_at=last.last_at, millis=0, segment=until,
        start=0, size=0,
        text=line_text("platform", 0, text),
    )  # fmt: skip
    job_logs.add(uow, notice)


def _platform_time(uow: UnitOfWork, at: RealTime) -> PlatformTime:
    """Return what the platform's clock showed at a real time shortly before this unit. A clock that
    jumped meanwhile showed less: such a line is dated too late by the jump at most, and never in
    the future."""
    ago = max(0, uow.real_now.nanos_since(at))
    clock = uow.clock
    if clock.mode is ClockMode.VIRTUAL:
        ago = ago * clock.rate_millionths // RATE_ONE
    elif not clock.running and clock.mode is ClockMode.LOCAL:
        ago = 0
    return uow.now.plus_nanos(-ago)
