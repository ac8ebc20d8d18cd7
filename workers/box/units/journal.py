"""Journals of services: a file for each unit, with the time, the
process and its program before each line."""

from __future__ import annotations

import heapq
import io
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from podyard.base.clock import RealClock

FOLDER = Path("/var/log/podyard")
UNIT_BYTES_MAX = 8 << 20  # then the file becomes the old one, and the old one goes
LINE_BYTES_MAX = 48 << 10  # LineMax of journald.conf(5)
FOLLOW_SECONDS = 0.2  # between two looks; nobody who reads notices
SYSTEM = "systemd"  # who says that a unit was started
_OLD = ".old"
_NANOS_PER_SECOND = 10**9


class JournalEntry(NamedTuple):
    """A line of a journal."""

    nanos: int
    pid: int
    program: str
    text: str

    def short(self, host: str) -> str:
        """As `journalctl` shows it."""
        when = datetime.fromtimestamp(self.nanos // _NANOS_PER_SECOND).astimezone()
        return f"{when:%b %d %H:%M:%S} {host} {self.program}[{self.pid}]: {self.text}"


class Journal:
    """The journal of one unit, as its supervisor writes it."""

    def __init__(self, name: str, clock: RealClock) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._path = FOLDER / name
        self._clock = clock
        self._file = self._open()

    def write(self, pid: int, program: str, text: str) -> None:
        line = f"{self._clock.now().nanos} {pid} {program.replace(' ', '_')} {text}\n"
        self._file.write(line.encode(errors="replace"))
        self._file.flush()
        if self._file.tell() > UNIT_BYTES_MAX:
            self._path.replace(f"{self._path}{_OLD}")
            self._file.close()
            self._file = self._open()

    def _open(self) -> io.BufferedWriter:
        return self._path.open("ab")


def names() -> list[str]:
    """The units that have a journal."""
    return sorted(path.name for path in FOLDER.glob("*.service"))


def last(units: Iterable[str], count: int | None) -> list[JournalEntry]:
    """The last entries of some units, or all, in the order of time."""
    whole = heapq.merge(*(_entries(name) for name in units), key=lambda entry: entry.nanos)
    return list(whole if count is None else deque(whole, count))


def follow(units: Iterable[str], clock: RealClock) -> Iterator[JournalEntry]:
    """Entries that are written from now on, for ever."""
    places = {name: _size(FOLDER / name) for name in units}
    while True:
        for name, place in places.items():
            path = FOLDER / name
            size = _size(path)
            if size == place:
                continue
            with path.open("rb") as file:
                file.seek(place if size > place else 0)  # a smaller one is a new one
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            places[name] = (place if size > place else 0) + len(whole)
            yield from _parse(whole.splitlines())
        clock.sleep(FOLLOW_SECONDS)


def _entries(name: str) -> Iterator[JournalEntry]:
    for path in (FOLDER / f"{name}{_OLD}", FOLDER / name):
        if path.exists():
            with path.open("rb") as file:
                yield from _parse(file)


def _parse(lines: Iterable[bytes]) -> Iterator[JournalEntry]:
    for line in lines:
        nanos, pid, program, text = (
            line.decode(errors="replace").rstrip("\n").split(" ", 3) + [""] * 4
        )[:4]
        if nanos.isdigit() and pid.isdigit():
            yield JournalEntry(int(nanos), int(pid), program, text)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
