"""Filters of log entries: Logging's query language, as far as its comparisons, AND, OR, NOT and
parentheses go (cloud.google.com/logging/docs/view/logging-query-language).

A filter is read once into a tree. Its bounds on time are taken out for the queries; the rest is
tested on each entry.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from podyard.base.clock import RealTime
from podyard.base.errors import PodyardError, invalid
from podyard.domain.observed.log_entry import SEVERITIES, LogEntry

FILTER_CHARACTERS_MAX = 20_000  # Google's limit
DEPTH_MAX = 30  # of parentheses and NOT
PATTERN_CHARACTERS_MAX = 200  # of a regular expression
_TOKEN = re.compile(
    r"\s*(?:(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<operator>!=|<=|>=|=~|!~|[=<>:()-])"
    r"|(?P<word>[^\s()=<>!:~\"']+(?:\"[^\"]*\"[^\s()=<>!:~\"']*)*)|(?P<other>\S))"
)
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">=", ":", "=~", "!~"})
_META = re.compile(r"\\.|[][()*+?{}.\\^$]")
Test = Callable[[LogEntry], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class LogFilter:
    """`since` and `until`: bounds that every entry of the filter keeps, both included; None where
    it has none."""

    test: Test
    since: RealTime | None = None
    until: RealTime | None = None


def read(text: str) -> LogFilter:
    """Raises INVALID_ARGUMENT for an invalid filter."""
    if len(text) > FILTER_CHARACTERS_MAX:
        raise invalid(f"the filter is longer than {FILTER_CHARACTERS_MAX} characters", "filter")
    parser = _LogFilterParser(text)
    test = parser.whole()
    return LogFilter(test, parser.since, parser.until)


class _LogFilterParser:
    """One filter. Bounds of time hold only outside of OR and NOT."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._loose = 0  # how many ORs and NOTs are around
        self.since: RealTime | None = None
        self.until: RealTime | None = None

    def whole(self) -> Test:
        if not self._tokens:
            return _all
        # An OR may follow later: bounds inside of it are not those of the whole.
        self._loose += any(word.upper() == "OR" for kind, word in self._tokens if kind == "word")
        test = self._every(0)
        if self._at < len(self._tokens):
            raise self._wrong()
        return test

    def _every(self, depth: int) -> Test:
        """Terms joined by AND, or by nothing. OR binds tighter in this language."""
        tests = [self._any(depth)]
        while self._at < len(self._tokens) and self._peek()[1] != ")":
            self._takes_word("AND")
            tests.append(self._any(depth))
        return tests[0] if len(tests) == 1 else lambda entry: all(test(entry) for test in tests)

    def _any(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._takes_word("OR"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda entry: any(test(entry) for test in tests)

    def _one(self, depth: int) -> Test:
        if depth > DEPTH_MAX:
            raise invalid(f"the filter is nested more than {DEPTH_MAX} times", "filter")
        kind, word = self._peek()
        if self._takes_word("NOT") or (kind == "operator" and word == "-" and self._next()):
            self._loose += 1
            test = self._one(depth + 1)
            self._loose -= 1
            return lambda entry: not test(entry)
        if word == "(" and kind == "operator":
            self._next()
            test = self._every(depth + 1)
            if self._next()[1] != ")":
                raise self._wrong()
            return test
        if kind == "operator":
            raise self._wrong()
        self._next()
        return self._comparison(kind, word)

    def _comparison(self, kind: str, word: str) -> Test:
        following = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if word == "log_id" and following == ("operator", "("):
            self._next()
            log_id = _plain(*self._next())
            if self._next()[1] != ")":
                raise self._wrong()
            return lambda entry: entry.log_id == log_id
        if following[0] != "operator" or following[1] not in _COMPARISONS:
            wanted = _plain(kind, word).lower()
            return lambda entry: any(wanted in text.lower() for text in _texts(entry))
        operator = self._next()[1]
        value_kind, value = self._next()
        if value_kind == "operator" and value == "(":
            return self._values(word, operator)
        if value_kind == "operator" and value == "-":
            value_kind, value = "word", f"-{self._next()[1]}"
        return self._compare(word, operator, _plain(value_kind, value))

    def _values(self, field: str, operator: str) -> Test:
        """`field = ("a" OR "b")`."""
        self._loose += 1
        tests = [self._compare(field, operator, _plain(*self._next()))]
        joined = ""
        while self._peek()[1] != ")":
            joined = self._next()[1].upper()
            tests.append(self._compare(field, operator, _plain(*self._next())))
        self._next()
        self._loose -= 1
        if joined == "AND":
            return lambda entry: all(test(entry) for test in tests)
        return lambda entry: any(test(entry) for test in tests)

    def _compare(self, field: str, operator: str, value: str) -> Test:
        if field == "timestamp":
            return self._time(operator, value)
        if field == "severity":
            return _severity(operator, value)
        return _field(tuple(_parts(field)), operator, value)

    def _time(self, operator: str, value: str) -> Test:
        full = value if "T" in value.upper() else f"{value}T00:00:00Z"
        try:
            moment = RealTime.from_rfc3339(full)
        except ValueError as error:
            raise invalid(f"filter: timestamp: {error}", "filter") from None
        if not self._loose:
            if operator in (">", ">=", "="):
                self.since = moment if self.since is None else max(self.since, moment)
            if operator in ("<", "<=", "="):
                self.until = moment if self.until is None else min(self.until, moment)
        order = _ORDERS.get(operator)
        if order is None:
            raise invalid(f"filter: timestamp cannot be compared by {operator!r}", "filter")
        return lambda entry: order(entry.at.nanos, moment.nanos)

    def _peek(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise self._wrong()
        return self._tokens[self._at]

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _takes_word(self, word: str) -> bool:
        if self._at >= len(self._tokens) or self._tokens[self._at] != ("word", word):
            return False
        self._at += 1
        return True

    def _wrong(self) -> PodyardError:
        where = self._tokens[self._at][1] if self._at < len(self._tokens) else "the end"
        return invalid(f"Unparseable filter: syntax error at {where[:40]!r}", "filter")


_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def _all(_entry: LogEntry) -> bool:
    return True


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    lines = re.sub(r"(?m)^\s*--.*$", "", text)  # comments
    while lines[at:].strip():
        token = _TOKEN.match(lines, at)
        if token is None or token["other"]:
            raise invalid(
                f"Unparseable filter: syntax error at {lines[at:].strip()[:40]!r}", "filter"
            )
        kind = str(token.lastgroup)
        yield kind, token[kind]
        at = token.end()


def _plain(kind: str, word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if kind == "text" else word


def _parts(field: str) -> Iterator[str]:
    """The parts of a field's path; a part may be quoted."""
    for part in re.findall(r'"[^"]*"|[^."]+', field):
        yield part.strip('"')


def _severity(operator: str, value: str) -> Test:
    order = _ORDERS.get("=" if operator == ":" else operator)
    name = value.upper()
    if order is None or (name not in SEVERITIES and not value.isdecimal()):
        raise invalid(
            f"filter: severity {operator} {value[:20]!r}: use one of {', '.join(SEVERITIES)}",
            "filter",
        )
    number = SEVERITIES.get(name, int(value) if value.isdecimal() else 0)
    return lambda entry: order(entry.severity, number)


def _field(path: tuple[str, ...], operator: str, value: str) -> Test:
    def values(entry: LogEntry) -> list[str]:
        return [str(item) for item in _look_up(entry, path)]

    if operator in ("=~", "!~"):
        pattern = _pattern(value)
        return lambda entry: any(map(pattern, values(entry))) == (operator == "=~")
    if operator == ":":
        wanted = value.lower()
        return lambda entry: any(value == "*" or wanted in item.lower() for item in values(entry))
    order = _ORDERS[operator]
    if operator == "!=":
        return lambda entry: all(item != value for item in values(entry))
    return lambda entry: any(order(*_comparable(item, value)) for item in values(entry))


def _comparable(item: str, value: str) -> tuple[Any, Any]:
    """Both as numbers where both are some."""
    try:
        return float(item), float(value)
    except ValueError:
        return item, value


def _pattern(value: str) -> Callable[[str], bool]:
    """The test of a regular expression of text, `.*`, `^`, `$` and `|`, which takes time in
    proportion to the text. Others are refused: Python's own could be made to run for hours."""
    if len(value) > PATTERN_CHARACTERS_MAX:
        raise invalid(
            f"filter: a regular expression has at most {PATTERN_CHARACTERS_MAX} characters",
            "filter",
        )
    choices = [_pieces(choice) for choice in value.split("|")]
    return lambda text: any(_follow(pieces, text) for pieces in choices)


def _pieces(choice: str) -> list[str]:
    """Texts that follow each other at any distance; "" at an end: it is not anchored there."""
    inner = choice.removeprefix("^").removesuffix("$")
    pieces = [_META.sub(_literal, piece) for piece in inner.split(".*")]
    first = [] if choice.startswith("^") else [""]
    return [*first, *pieces, *([] if choice.endswith("$") else [""])]


def _literal(meta: re.Match[str]) -> str:
    text = meta[0]
    if not text.startswith("\\") or text[1:].isalnum():
        raise invalid(
            f"filter: {text!r} in a regular expression is not supported: use text, .*, ^, $ and |",
            "filter",
        )
    return text[1:]


def _follow(pieces: list[str], text: str) -> bool:
    if not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
        return False
    at, end = len(pieces[0]), len(text) - len(pieces[-1])
    if len(pieces) == 1:
        return text == pieces[0]
    for piece in pieces[1:-1]:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return at <= end


def _look_up(entry: LogEntry, path: tuple[str, ...]) -> list[Any]:
    """The values at a path; nothing where there are none."""
    first, rest = path[0], path[1:]
    roots: dict[str, Any] = {
        "logName": entry.log_name,
        "insertId": entry.insert_id,
        "textPayload": entry.text,
        "labels": entry.labels,
        "resource": {"type": entry.resource_type, "labels": entry.resource_labels},
        "protoPayload" if entry.is_proto else "jsonPayload": entry.payload,
        "receiveTimestamp": entry.received.rfc3339(),
    }
    value = roots.get(first)
    if isinstance(value, Mapping) and rest and ".".join(rest) in value:
        return list(_leaves(value[".".join(rest)]))
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return []
    return list(_leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, bool):
        yield str(value).lower()
    elif value is not None:
        yield value


def _texts(entry: LogEntry) -> Iterator[str]:
    yield from (entry.log_name, entry.insert_id, entry.resource_type, entry.text or "")
    for group in (entry.labels, entry.resource_labels, entry.payload or {}):
        yield from (str(item) for item in _leaves(group))
