"""Filters and orders of lists, as AIP-160 and AIP-132 define them, over the JSON of the resources.

`a = "x"`, `!=`, `<`, `<=`, `>`, `>=`, `a:x` (has), `a:*` (is there), AND (also by juxtaposition),
OR (binds tighter than AND), NOT and `-`, parentheses, `*` at either end of a text; a lone word is
looked for in every value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from podyard.api.tpu.schema import to_snake
from podyard.base.errors import PodyardError, invalid

FILTER_CHARACTERS_MAX = 4096  # a filter is typed, or made of a few ids
FILTER_DEPTH_MAX = 50  # of parentheses: deeper ones would only exhaust the stack

Resource = Mapping[str, Any]
Predicate = Callable[[Resource], bool]
_TOKEN = re.compile(
    r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(<=|>=|!=|[=<>:()])|(-(?=[^\s\d]))|([^\s"'=<>:()!]+))"""
)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def matcher(text: str) -> Predicate:
    """The filter as a predicate; raises INVALID_ARGUMENT that says where it cannot be read."""
    if len(text) > FILTER_CHARACTERS_MAX:
        raise invalid(f"filter is longer than {FILTER_CHARACTERS_MAX} characters", "filter")
    if not text.strip():
        return lambda _resource: True
    return _Parser(text).parse()


def order(items: Sequence[Resource], text: str) -> list[Resource]:
    """`items` by the fields that `text` names (`name desc, type`); raises INVALID_ARGUMENT for a
    malformed order."""
    found = list(items)
    for part in reversed([part.strip() for part in text.split(",") if part.strip()]):
        words = part.split()
        if len(words) > 2 or (len(words) == 2 and words[1].lower() not in ("asc", "desc")):
            raise invalid(
                f"invalid orderBy {part!r}: use a field, optionally followed by asc or desc",
                "orderBy",
            )
        path = words[0]
        if found and not any(list(_values(item, path)) for item in found):
            raise invalid(f"orderBy has the unknown field {path!r}", "orderBy")
        found.sort(key=partial(_sort_key, path), reverse=words[-1].lower() == "desc")
    return found


def _sort_key(path: str, item: Resource) -> str:
    return str(next(_values(item, path), ""))


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def parse(self) -> Predicate:
        found = self._expression()
        if self._at < len(self._tokens):
            raise _unreadable(self._tokens[self._at][1])
        return found

    def _expression(self) -> Predicate:
        factors = [self._factor()]
        while (kind := self._peek()[0]) and self._peek() != ("sign", ")"):
            if (kind, self._peek()[1]) == ("word", "AND"):
                self._at += 1
            factors.append(self._factor())
        return lambda resource: all(factor(resource) for factor in factors)

    def _factor(self) -> Predicate:
        terms = [self._term()]
        while self._peek() == ("word", "OR"):
            self._at += 1
            terms.append(self._term())
        return lambda resource: any(term(resource) for term in terms)

    def _term(self) -> Predicate:
        if self._peek() in (("word", "NOT"), ("minus", "-")):
            self._at += 1
            simple = self._simple()
            return lambda resource: not simple(resource)
        return self._simple()

    def _simple(self) -> Predicate:
        kind, text = self._take()
        if (kind, text) == ("sign", "("):
            self._depth += 1
            if self._depth > FILTER_DEPTH_MAX:
                raise invalid(
                    f"filter has more than {FILTER_DEPTH_MAX} nested parentheses", "filter"
                )
            inner = self._expression()
            if self._take() != ("sign", ")"):
                raise invalid("filter has an unclosed parenthesis", "filter")
            self._depth -= 1
            return inner
        if kind not in ("word", "text"):
            raise _unreadable(text)
        operator = self._peek()
        if operator[0] != "sign" or operator[1] in "()":
            return lambda resource: any(_like(value, f"*{text}*") for value in _leaves(resource))
        self._at += 1
        value_kind, value = self._take()
        if value_kind == "minus":
            value_kind, value = self._take()
            value = f"-{value}"
        if value_kind not in ("word", "text"):
            raise _unreadable(value)
        return _restriction(text, operator[1], value)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self) -> tuple[str, str]:
        found = self._peek()
        if not found[0]:
            raise invalid("filter is incomplete", "filter")
        self._at += 1
        return found


def _restriction(path: str, operator: str, value: str) -> Predicate:
    if operator == "=":
        return lambda resource: any(_like(found, value) for found in _values(resource, path))
    if operator == "!=":
        return lambda resource: not any(_like(found, value) for found in _values(resource, path))
    if operator == ":":
        if value == "*":
            return lambda resource: any(True for _ in _values(resource, path))
        return lambda resource: any(_has(found, value) for found in _values(resource, path))
    compare = _COMPARISONS[operator]
    return lambda resource: any(
        _compare(found, value, compare) for found in _values(resource, path)
    )


def _values(resource: Any, path: str) -> Iterator[Any]:
    """What stands at `path` (`labels.team`, `endpoints.ip`): of every item where a list is on the
    way."""
    if isinstance(resource, list | tuple):
        for item in resource:
            yield from _values(item, path)
        return
    if not path:
        yield resource
        return
    if not isinstance(resource, Mapping):
        return
    for name, value in resource.items():
        for spelling in (name, to_snake(name)):
            if path == spelling or path.startswith(f"{spelling}."):
                yield from _values(value, path[len(spelling) + 1 :])
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


def _has(found: Any, value: str) -> bool:
    if isinstance(found, Mapping):
        return value in found
    return _like(found, value) or (
        isinstance(found, str) and value.lower() in found.lower().split("/")
    )


def _like(found: Any, value: str) -> bool:
    if isinstance(found, Mapping):
        return False
    text = str(found).lower() if isinstance(found, bool) else str(found)
    wanted = value.lower() if isinstance(found, bool) else value
    starts, ends, core = wanted.startswith("*"), wanted.endswith("*"), wanted.strip("*")
    if starts and ends:
        return core in text
    if starts:
        return text.endswith(core)
    return text.startswith(core) if ends else text == wanted


def _compare(found: Any, value: str, compare: Callable[[Any, Any], bool]) -> bool:
    if isinstance(found, Mapping):
        return False
    try:
        return compare(float(found), float(value))
    except ValueError:
        return compare(str(found), value)  # times in RFC 3339 and UTC sort as texts


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unreadable(text[at:].strip()[:20])
        at = found.end()
        quoted, sign, minus, word = found.groups()
        if quoted is not None:
            yield "text", re.sub(r"\\(.)", r"\1", quoted[1:-1])
        elif sign is not None:
            yield "sign", sign
        elif minus is not None:
            yield "minus", minus
        else:
            yield "word", word


def _unreadable(text: str) -> PodyardError:
    return invalid(f"filter has a syntax error at {text!r}", "filter")
