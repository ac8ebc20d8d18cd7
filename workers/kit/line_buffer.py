"""Lines that a replica has written and the server has not taken yet. Who writes more than the
server takes waits: none is lost."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from podyard.base.clock import NANOS_PER_SECOND, RealTime
from podyard.domain.log import CHUNK_CHARACTERS_MAX, CHUNK_LINES_MAX, LINE_CHARACTERS_MAX, line_text

# characters as JSON has them; a worker that writes for seconds while the API is away
WAITING_MAX = 4 << 20
WAKE_AT = CHUNK_CHARACTERS_MAX // 2  # sooner than the next report: a chunk is nearly full
_NANOS_PER_MILLI = NANOS_PER_SECOND // 1000
_ESCAPED = 6  # characters of JSON that one may become
_HEAD = 16  # of a line, before its text


class _Line(NamedTuple):
    at: RealTime
    stream: str
    text: str
    cost: int


class LineBuffer:
    """`may_wait`: whether a writer can be kept waiting; `wake` asks for a report."""

    def __init__(self, may_wait: Callable[[], bool], wake: Callable[[], None]) -> None:
        self._may_wait = may_wait
        self._wake = wake
        self._lines: deque[_Line] = deque()
        self._cost = 0
        self._seq = 0  # of the first one
        self._room = threading.Condition()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, at: RealTime, stream: str, line: str) -> None:
        """A line, or where it is too long or has newlines, several."""
        for piece in line.split("\n"):
            for first in range(0, len(piece) or 1, LINE_CHARACTERS_MAX):
                self._add(at, stream, piece[first : first + LINE_CHARACTERS_MAX])

    def _add(self, at: RealTime, stream: str, text: str) -> None:
        size = len(text) if text.isascii() and text.isprintable() else _ESCAPED * len(text)
        with self._room:
            while self._cost > WAITING_MAX and self._may_wait():
                self._wake()
                self._room.wait(0.5)
            self._lines.append(_Line(at, stream, text, size + _HEAD))
            self._cost += size + _HEAD
            is_much = self._cost >= WAKE_AT
        if is_much:
            self._wake()

    def chunk(self) -> dict[str, Any] | None:
        """The lines that come next, as a report has them; None: there are none."""
        with self._room:
            if not self._lines:
                return None
            begin, cost, millis = self._lines[0].at, 0, 0
            texts: list[str] = []
            for line in self._lines:
                cost += line.cost
                if texts and (cost > CHUNK_CHARACTERS_MAX or len(texts) == CHUNK_LINES_MAX):
                    break
                millis = max(millis, line.at.nanos_since(begin) // _NANOS_PER_MILLI)
                texts.append(line_text(line.stream, millis, line.text))
            seq = self._seq
        at = begin.rfc3339()
        return {"seq": seq, "lines": len(texts), "at": at, "millis": millis, "text": "".join(texts)}

    def on_taken(self, next_seq: int) -> None:
        """The server has the lines before this number."""
        with self._room:
            while self._lines and self._seq < next_seq:
                self._cost -= self._lines.popleft().cost
                self._seq += 1
            self._room.notify_all()
