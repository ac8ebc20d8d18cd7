"""A plane of a profiler's trace, as bytes of the protocol buffer XSpace (tsl/profiler/protobuf/
xplane.proto): the fields that a device's plane has.

The parts of a serialized XSpace can be joined: a plane that is appended to a file is one more of
its planes.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence

from podyard.base.protobuf import varint

Value = int | float | str | bytes


@dataclasses.dataclass(frozen=True, slots=True)
class PlaneEvent:
    """Something that a device does: what (an index of the plane's `kinds`), and when, in
    picoseconds from the start of the trace. `stats` are of this event alone."""

    kind: int
    start_ps: int
    duration_ps: int
    stats: tuple[tuple[str, Value], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class EventKind:
    """The common part of events of a plane."""

    name: str
    display_name: str = ""
    stats: tuple[tuple[str, Value], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PlaneLine:
    name: str
    events: Sequence[PlaneEvent]


@dataclasses.dataclass(frozen=True, slots=True)
class Plane:
    name: str
    stats: tuple[tuple[str, Value], ...]
    kinds: Sequence[EventKind]
    lines: Sequence[PlaneLine]


def space_of(planes: Iterable[Plane], warnings: Iterable[str]) -> bytes:
    """Return an XSpace with these planes, in their order, and warnings."""
    return b"".join(
        [
            *(_field(1, _plane(number, plane)) for number, plane in enumerate(planes)),
            *(_field(3, text.encode()) for text in warnings),
        ]
    )


def message_of(numbers: Iterable[tuple[int, int]]) -> bytes:
    """Return a message whose fields, by number, are numbers."""
    return b"".join(_number(number, value) for number, value in numbers)


def submessage_of(number: int, body: bytes) -> bytes:
    """Return a message with one message in it."""
    return _field(number, body)


def _plane(number: int, plane: Plane) -> bytes:
    names = _StatNames()
    lines = b"".join(_field(3, _line(place, line, names)) for place, line in enumerate(plane.lines))
    kinds = b"".join(
        _field(4, _entry(key, _kind(key, kind, names))) for key, kind in enumerate(plane.kinds, 1)
    )
    stats = b"".join(_field(6, names.stat(name, value)) for name, value in plane.stats)
    return b"".join(
        [_number(1, number), _field(2, plane.name.encode()), lines, kinds, names.entries(), stats]
    )


def _line(place: int, line: PlaneLine, names: _StatNames) -> bytes:
    events = (
        _field(
            4,
            _number(1, event.kind + 1)
            + _number(2, event.start_ps)
            + _number(3, event.duration_ps)
            + b"".join(_field(4, names.stat(name, value)) for name, value in event.stats),
        )
        for event in line.events
    )
    return b"".join([_number(1, place + 1), _field(2, line.name.encode()), *events])


def _kind(key: int, kind: EventKind, names: _StatNames) -> bytes:
    return b"".join(
        [
            _number(1, key),
            _field(2, kind.name.encode()),
            _field(4, kind.display_name.encode()) if kind.display_name else b"",
            *(_field(5, names.stat(name, value)) for name, value in kind.stats),
        ]
    )


class _StatNames:
    """The names of a plane's statistics, which have a number each."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def stat(self, name: str, value: Value) -> bytes:
        head = _number(1, self._numbers.setdefault(name, len(self._numbers) + 1))
        if isinstance(value, str):
            return head + _field(5, value.encode())
        if isinstance(value, bytes):
            return head + _field(6, value)
        if isinstance(value, float):
            return head + _key(2, 1) + struct.pack("<d", value)
        return head + _number(3, value)

    def entries(self) -> bytes:
        return b"".join(
            _field(5, _entry(number, _number(1, number) + _field(2, name.encode())))
            for name, number in self._numbers.items()
        )


def _entry(key: int, value: bytes) -> bytes:
    """Of a map."""
    return _number(1, key) + _field(2, value)


def _field(number: int, body: bytes) -> bytes:
    return _key(number, 2) + varint(len(body)) + body


def _number(number: int, value: int) -> bytes:
    return _key(number, 0) + varint(value)


def _key(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)
