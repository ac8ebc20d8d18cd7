"""The tables of methods and messages, read."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from podyard.api.google_apis import messages, methods
from podyard.api.wire.vocabulary import Field, MessageSchema, Vocabulary

_PLACE = re.compile(r"\{(\w+)(?:=([^}]*))?\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Api:
    name: str
    version: str
    title: str

    @property
    def host(self) -> str:
        return f"{self.name}.googleapis.com"


@dataclasses.dataclass(frozen=True, slots=True)
class ApiMethod:
    """`path` as in the table; `pattern` finds the names in a path; `query`: names with types."""

    api: Api
    id: str
    verb: str
    path: str
    pattern: re.Pattern[str]
    query: Mapping[str, str]
    request: str
    answer: str
    permission: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.api.name}.{self.api.version}.{self.id}"


@functools.cache
def vocabulary() -> Vocabulary:
    fields: dict[str, dict[str, Field]] = {}
    texts: dict[str, str] = {}
    name = ""
    for line in messages.TABLE.strip().splitlines():
        if not line.startswith(" "):
            name, _, texts[name] = line.partition(": ")
            fields[name] = {}
            continue
        field, kind, text = (part.strip() for part in line.split(" | "))
        plain = field.removesuffix("?")
        fields[name][plain] = Field(
            plain,
            kind.removesuffix("[]"),
            repeated=kind.endswith("[]"),
            left_aside=field.endswith("?"),
            text=text,
        )
    table = {name: MessageSchema(name, texts[name], of_it) for name, of_it in fields.items()}
    return Vocabulary("google", table, {})


@functools.cache
def all_methods() -> tuple[ApiMethod, ...]:
    return tuple(_methods())


def _methods() -> Iterator[ApiMethod]:
    api = Api("", "", "")
    for line in methods.TABLE.strip().splitlines():
        if line.startswith("= "):
            api = Api(*(part.strip() for part in line[2:].split(" | ")))
            continue
        method, verb, path, query, request, answer, permission, text = (
            part.strip() for part in line.split("|")
        )
        yield ApiMethod(
            api=api,
            id=method,
            verb=verb,
            path=path,
            pattern=_pattern(path),
            query={
                name: kind or ("string[]" if name.endswith("[]") else "string")
                for name, _, kind in (word.partition(":") for word in query.split())
            },
            request="" if request == "-" else request,
            answer=answer,
            permission="" if permission == "-" else permission,
            text=text,
        )


def _pattern(path: str) -> re.Pattern[str]:
    """A part of a name holds neither slash nor colon: the verb follows the colon."""
    parts, end = [], 0
    for result in _PLACE.finditer(path):
        parts.append(re.escape(path[end : result.start()]))
        inside = re.escape(result[2] or "*").replace(r"\*", "[^/:]+")
        parts.append(f"(?P<{result[1]}>{inside})")
        end = result.end()
    return re.compile("".join(parts) + re.escape(path[end:]))


def find(host: str, verb: str, path: str) -> tuple[ApiMethod, dict[str, str]] | None:
    """The method that a path without its first slash calls, with the names in it."""
    for method in all_methods():
        if method.api.host == host and method.verb == verb:
            match = method.pattern.fullmatch(path)
            if match is not None:
                return method, match.groupdict()
    return None


HOSTS = frozenset(method.api.host for method in all_methods())
