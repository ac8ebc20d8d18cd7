"""Lines of a job's log: how they are written in chunks, and read again.

A line is the letter of its stream, milliseconds since the first line of its chunk, a space, the
text and a newline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from podyard.base.clock import PlatformTime, RealTime

LINE_CHARACTERS_MAX = 4096  # a longer one goes on in the next line
CHUNK_LINES_MAX = 20_000
# as JSON has them: with what else a report says, below the limit of its body
CHUNK_CHARACTERS_MAX = 384 * 1024
STREAMS = {"stdout": "o", "stderr": "e", "platform": "p", "stacks": "s"}
_NAMES = {letter.encode(): name for name, letter in STREAMS.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenLines:
    """The lines that a replica has written since its last report. `seq`: of the first line, they
    count from 0; `at`: when that was; `millis`: until the last one."""

    seq: int
    lines: int
    at: RealTime
    millis: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """Lines of one replica. They are bytes of a file, `size` of them from `start`, or where `text`
    is not None that. `segment`: the number of the file."""

    replica_id: str
    seq: int
    job_key: str
    attempt: int
    rank: int
    lines: int
    first_at: PlatformTime
    last_at: PlatformTime
    millis: int
    segment: int = 0
    start: int = 0
    size: int = 0
    text: str | None = None

    @property
    def next_seq(self) -> int:
        return self.seq + self.lines

    @property
    def file(self) -> str:
        return segment_file(self.job_key, self.attempt, self.rank, self.segment)

    def time_of(self, millis: int) -> PlatformTime:
        """Of a line so many milliseconds after the first one."""
        if not self.millis:
            return self.first_at
        nanos = self.last_at.nanos - self.first_at.nanos
        return self.first_at.plus_nanos(nanos * min(millis, self.millis) // self.millis)


@dataclasses.dataclass(frozen=True, slots=True)
class LogLine:
    """`rank`: of the replica that wrote it; `stream`: stdout, stderr, platform for what Podyard
    says of the job, or stacks for those that were asked for."""

    at: PlatformTime
    rank: int
    attempt: int
    seq: int
    line: str
    stream: str = "stdout"


def segment_file(job_key: str, attempt: int, rank: int, segment: int) -> str:
    return f"{job_key}/{attempt}/{rank}/{segment:06}.log"


def line_text(stream: str, millis: int, line: str) -> str:
    """`line` has no newline."""
    return f"{STREAMS[stream]}{millis} {line}\n"


def text_of(line: LogLine, slice_index: int | None = None) -> str:
    """As people keep it: time, [attempt.worker], with the slice where there are several, stream,
    and what was
    written."""
    of_slice = "" if slice_index is None else f" slice {slice_index}"
    return f"{line.at.rfc3339()} [{line.attempt}.{line.rank}{of_slice}] {line.stream} {line.line}\n"


def lines_of(chunk: LogChunk, data: bytes, first: int) -> Iterator[LogLine]:
    """The lines of a chunk from number `first` on. What a file has lost is left out."""
    pieces = data.split(b"\n")[:-1]
    for index in range(max(0, first - chunk.seq), min(len(pieces), chunk.lines)):
        head, _, text = pieces[index].partition(b" ")
        millis = int(head[1:]) if head[1:].isdigit() else 0
        stream, line = _NAMES.get(head[:1], "stdout"), text.decode(errors="replace")
        yield LogLine(
            chunk.time_of(millis), chunk.rank, chunk.attempt, chunk.seq + index, line, stream
        )
