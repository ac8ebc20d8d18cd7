"""Filters of lists, as AIP-160 defines them: read once to a tree, which tests resources, and says
how much of it a database can do.

`a = "x"`, `!=`, `<`, `<=`, `>`, `>=`, `a:x` (has), `a:*` (is there), AND (also by juxtaposition),
OR (binds tighter than AND), NOT and `-`, parentheses, `*` at either end of a text; a lone word is
looked for in every value. `eq` and `ne` are Compute Engine's: the value is a regular expression
that must match the whole field.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.base.spelling import snake_case

FILTER_CHARACTERS_MAX = 4096  # a filter is typed, or made of a few ids
LABELS = "labels."  # how the path of a label begins
FILTER_DEPTH_MAX = 50  # of parentheses: deeper ones would only exhaust the stack

Resource = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class AllOf:
    """True where all parts are; without parts, everywhere."""

    parts: tuple[Filter, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Filter, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    part: Filter


@dataclasses.dataclass(frozen=True, slots=True)
class FieldTest:
    path: str
    operator: str
    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A text that any value may hold."""

    text: str


Filter = AllOf | AnyOf | Not | FieldTest | Word
EVERYTHING = AllOf()

_TOKEN = re.compile(
    r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(<=|>=|!=|[=<>:()])|(-(?=[^\s\d]))"""
    # A time has colons, also where nobody put it in quotes.
    r"""|(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[-+]\d\d:\d\d)|[^\s"'=<>:()!]+))"""
)
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}
_REGULAR = ("eq", "ne")
_LABEL_KEY = re.compile(r"[\w-]+")  # others have a meaning in a database's path
_ESCAPE = re.compile(r"\\(.)")
_QUOTE = re.compile(r"\\([\"'])")  # in a pattern all other escapes are the pattern's own
REPETITIONS_MAX = 3  # of one pattern: each multiplies the time by the length of the text
REGULAR_CHARACTERS_MAX = 256  # of a text that is tested: names and URLs are shorter
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REFERENCE = re.compile(r"\\\d|\(\?")
_REPEATED = re.compile(r"(?<!\\)[*+{]")
_PLAIN_PATTERN = re.compile(r"[A-Za-z0-9_/-]*")


def parse(text: str, *, regular: bool = False) -> Filter:
    """The filter as a tree; raises INVALID_ARGUMENT that says where it cannot be read. `regular`:
    it may have `eq` and `ne`."""
    if len(text) > FILTER_CHARACTERS_MAX:
        raise invalid(f"filter is longer than {FILTER_CHARACTERS_MAX} characters", "filter")
    return _Parser(text, regular).parse() if text.strip() else EVERYTHING


class _Parser:
    def __init__(self, text: str, regular: bool) -> None:
        self._tokens = list(_tokens(text))
        self._regular = regular
        self._at = 0
        self._depth = 0

    def parse(self) -> Filter:
        tree = self._expression()
        if self._at < len(self._tokens):
            raise _unreadable(self._tokens[self._at][1])
        return tree

    def _expression(self) -> Filter:
        factors = [self._factor()]
        while (kind := self._peek()[0]) and self._peek() != ("sign", ")"):
            if (kind, self._peek()[1]) == ("word", "AND"):
                self._at += 1
            factors.append(self._factor())
        return factors[0] if len(factors) == 1 else AllOf(tuple(factors))

    def _factor(self) -> Filter:
        terms = [self._term()]
        while self._peek() == ("word", "OR"):
            self._at += 1
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def _term(self) -> Filter:
        if self._peek() in (("word", "NOT"), ("minus", "-")):
            self._at += 1
            return Not(self._simple())
        return self._simple()

    def _simple(self) -> Filter:
        kind, text = self._take()
        if (kind, text) == ("sign", "("):
            return self._group()
        if kind not in ("word", "text"):
            raise _unreadable(text)
        operator = self._peek()
        if self._regular and operator[0] == "word" and operator[1] in _REGULAR:
            self._at += 1
            pattern = _QUOTE.sub(r"\1", self._value())
            return _regular_comparison(_plain(kind, text), operator[1], pattern)
        if operator[0] != "sign" or operator[1] in "()":
            return Word(_plain(kind, text))
        self._at += 1
        value_kind = self._peek()[0]
        return FieldTest(_plain(kind, text), operator[1], _plain(value_kind, self._value()))

    def _group(self) -> Filter:
        self._depth += 1
        if self._depth > FILTER_DEPTH_MAX:
            raise invalid(f"filter has more than {FILTER_DEPTH_MAX} nested parentheses", "filter")
        inner = self._expression()
        if self._take() != ("sign", ")"):
            raise invalid("filter has an unclosed parenthesis", "filter")
        self._depth -= 1
        return inner

    def _value(self) -> str:
        kind, value = self._take()
        if kind == "minus":
            kind, value = self._take()
            value = f"-{value}"
        if kind not in ("word", "text"):
            raise _unreadable(value)
        return value

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        if not token[0]:
            raise invalid("filter is incomplete", "filter")
        self._at += 1
        return token


def _plain(kind: str, text: str) -> str:
    """A word, or a text without its escapes."""
    return _ESCAPE.sub(r"\1", text) if kind == "text" else text


def _regular_comparison(path: str, operator: str, pattern: str) -> Filter:
    if _PLAIN_PATTERN.fullmatch(pattern):
        return FieldTest(path, "=" if operator == "eq" else "!=", pattern)
    _check_pattern(pattern)
    return FieldTest(path, operator, pattern)


def _check_pattern(pattern: str) -> None:
    """Raise INVALID_ARGUMENT for what cannot be read, and for what takes longer the longer a text
    is, without an end: Google's RE2 has no such patterns, Python's expressions have."""
    text = f"filter has the regular expression {pattern!r}"
    try:
        re.compile(pattern)
    except re.error as error:
        raise invalid(f"{text}: {error}", "filter") from None
    if _REPEATED_GROUP.search(pattern) or _REFERENCE.search(pattern):
        raise invalid(f"{text}: Podyard reads none with a group that is repeated", "filter")
    if len(_REPEATED.findall(pattern)) > REPETITIONS_MAX:
        raise invalid(f"{text}: Podyard reads at most {REPETITIONS_MAX} repetitions", "filter")


def matches(tree: Filter, resource: Resource) -> bool:
    """Return whether a resource, as its answer shows it, passes a filter."""
    if isinstance(tree, AllOf):
        return all(matches(part, resource) for part in tree.parts)
    if isinstance(tree, AnyOf):
        return any(matches(part, resource) for part in tree.parts)
    if isinstance(tree, Not):
        return not matches(tree.part, resource)
    if isinstance(tree, Word):
        return any(_like(value, f"*{tree.text}*") for value in _leaves(resource))
    return _compares(tree, resource)


def _compares(test: FieldTest, resource: Resource) -> bool:
    values = list(values_at(resource, test.path))
    value = test.value
    if test.operator in ("=", "!="):
        return any(_like(one, value) for one in values) is (test.operator == "=")
    if test.operator in _REGULAR:
        return any(_fits(value, str(one)) for one in values) is (test.operator == "eq")
    if test.operator == ":":
        return bool(values) if value == "*" else any(_has(one, value) for one in values)
    return any(_compare(one, value, _SIGNS[test.operator]) for one in values)


def _fits(pattern: str, text: str) -> bool:
    return len(text) <= REGULAR_CHARACTERS_MAX and re.fullmatch(pattern, text) is not None


def values_at(resource: Any, path: str) -> Iterator[Any]:
    """Yield what stands at `path` (`labels.team`, `endpoints.ip`): of every item where a list is on
    the way."""
    if isinstance(resource, list | tuple):
        for item in resource:
            yield from values_at(item, path)
        return
    if not path:
        yield resource
        return
    if not isinstance(resource, Mapping):
        return
    for name, value in resource.items():
        for spelling in (name, snake_case(name)):
            if path == spelling or path.startswith(f"{spelling}."):
                yield from values_at(value, path[len(spelling) + 1 :])
                break


def _leaves(resource: Any) -> Iterator[Any]:
    if isinstance(resource, Mapping):
        for value in resource.values():
            yield from _leaves(value)
    elif isinstance(resource, list | tuple):
        for item in resource:
            yield from _leaves(item)
    else:
        yield resource


def _has(one: Any, value: str) -> bool:
    if isinstance(one, Mapping):
        return value in one
    return _like(one, value) or (isinstance(one, str) and value.lower() in one.lower().split("/"))


def _like(one: Any, value: str) -> bool:
    if isinstance(one, Mapping):
        return False
    text = str(one).lower() if isinstance(one, bool) else str(one)
    pattern = value.lower() if isinstance(one, bool) else value
    starts, ends, core = pattern.startswith("*"), pattern.endswith("*"), pattern.strip("*")
    if starts and ends:
        return core in text
    if starts:
        return text.endswith(core)
    return text.startswith(core) if ends else text == pattern


def _compare(one: Any, value: str, compare: Callable[[Any, Any], bool]) -> bool:
    if isinstance(one, Mapping):
        return False
    try:
        return compare(float(one), float(value))
    except ValueError:
        times = _time(str(one)), _time(value)
        return compare(*((str(one), value) if None in times else times))


def _time(text: str) -> PlatformTime | None:
    """The moment that a text says, in any offset."""
    try:
        return PlatformTime.from_rfc3339(text)
    except ValueError:
        return None


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text[at:].strip()[:20])
        at = match.end()
        quoted, sign, minus, word = match.groups()
        if quoted is not None:
            yield "text", quoted[1:-1]
        elif sign is not None:
            yield "sign", sign
        elif minus is not None:
            yield "minus", minus
        else:
            yield "word", word


def _unreadable(text: str) -> PodyardError:
    return invalid(f"filter has a syntax error at {text!r}", "filter")


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A test that a database can do: the row's `field` is one of `values`, or, where `sign` is `<`,
    `<=`, `>` or `>=`, on that side of the one value. A field `labels.K` is the value of a label;
    `CREATED` is a moment."""

    field: str
    values: tuple[str, ...]
    sign: str = "="

    @property
    def moment(self) -> PlatformTime:
        return PlatformTime.from_rfc3339(self.values[0])


CREATED = "created"


def split(tree: Filter, fields: Mapping[str, str]) -> tuple[Sequence[Condition], Filter]:
    """Return the conditions that all rows of a filter meet, and the rest of it. `fields`: the
    fields of rows by the paths of a filter; a path with `.` at its end stands for all below it."""
    conditions, rest = list[Condition](), list[Filter]()
    for part in _parts(tree):
        condition = _condition(part, fields)
        if condition is None:
            rest.append(part)
        else:
            conditions.append(condition)
    return conditions, rest[0] if len(rest) == 1 else AllOf(tuple(rest))


def _parts(tree: Filter) -> Iterator[Filter]:
    """Yield the parts that a filter joins by AND, however they are put in parentheses."""
    if isinstance(tree, AllOf):
        for part in tree.parts:
            yield from _parts(part)
    else:
        yield tree


def _condition(part: Filter, fields: Mapping[str, str]) -> Condition | None:
    if isinstance(part, FieldTest) and fields.get(part.path) == CREATED:
        is_moment = part.operator in ("=", *_SIGNS) and _time(part.value) is not None
        return Condition(CREATED, (part.value,), part.operator) if is_moment else None
    tests = part.parts if isinstance(part, AnyOf) else (part,)
    names, values = set[str](), list[str]()
    for test in tests:
        if not isinstance(test, FieldTest) or test.operator != "=" or "*" in test.value:
            return None
        base, _, rest = test.path.partition(".")
        field = fields.get(test.path)
        if field is None and f"{base}." in fields and _LABEL_KEY.fullmatch(rest):
            field = f"{fields[f'{base}.']}{rest}"
        if field is None or field == CREATED:
            return None
        names.add(field)
        values.append(test.value)
    return Condition(names.pop(), tuple(values)) if len(names) == 1 else None
