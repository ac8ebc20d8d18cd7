"""JSON of clients to messages of a vocabulary in one canonical form.

Reading takes what protobuf's JSON mapping takes: both spellings of names, enums as text or number,
integers as text or number, null for unset. The canonical form has camelCase names, enums as text,
int64 as text, RFC 3339 times in UTC, and no field that is unset or has its default. What is output
only is left aside; every other name that the version does not know is refused. A list of messages
may come as one object, which SkyPilot sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podyard.api.wire.vocabulary import Field, Vocabulary
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import BadRequest, Code, FieldViolation, PodyardError

# Parameters of every Google API, in addition to the fields of a method (`parameters` of a discovery
# document).
SHARED_PARAMETERS = frozenset(
    {
        "$.xgafv", "$alt", "$prettyPrint", "access_token", "alt", "callback", "fields", "key",
        "oauth_token",
        "prettyPrint", "quotaUser", "uploadType", "upload_protocol", "userProject", "$userProject",
        "$unique",
    }
)  # fmt: skip
DEPTH_MAX = 100  # of nested messages; protobuf's own limit
_DURATION = re.compile(r"-?(\d{1,12})(?:\.(\d{1,9}))?s")
_INTEGER = re.compile(r"-?\d{1,20}(\.0+)?")


class Problems:
    """The faults of a request: every wrong field is named at once."""

    def __init__(self) -> None:
        self._violations: list[FieldViolation] = []

    def add(self, field: str, text: str) -> None:
        self._violations.append(FieldViolation(field, text))

    def add_unknown(self, path: str, name: str) -> None:
        where = f" at '{path}'" if path else ""
        self.add(
            path, f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'
        )

    def add_unbound(self, name: str) -> None:
        text = f"Cannot bind query parameter. Field '{name}' could not be found in request message."
        self.add(name, f'Invalid JSON payload received. Unknown name "{name}": {text}')

    def wrong(self, path: str, kind: str, value: object) -> None:
        self.add(path, f"Invalid value at '{path}' ({kind}), {_quote(value)}")

    def raise_if_any(self) -> None:
        if self._violations:
            raise PodyardError(
                Code.INVALID_ARGUMENT,
                "\n".join(violation.description for violation in self._violations),
                [BadRequest(tuple(self._violations))],
            )


def read(words: Vocabulary, message: str, data: object, path: str = "") -> dict[str, Any]:
    """`data` as a message in the canonical form; raises INVALID_ARGUMENT that names every wrong
    field. `path` is the field that the body stands for."""
    problems = Problems()
    found = _read(words, message, data, path, problems, 0)
    problems.raise_if_any()
    return found


def read_field(words: Vocabulary, field: Field, value: object, problems: Problems) -> Any:
    """One value, as of a query parameter; None when it is unset."""
    return _value(words, field, value, field.snake, problems, 0)


def read_query(
    words: Vocabulary, fields: Mapping[str, Field], items: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """The parameters of a query that `fields` has; those of every Google API are left aside.
    Raises INVALID_ARGUMENT that names every other one, and every wrong value."""
    problems = Problems()
    query: dict[str, Any] = {}
    for name, value in items:
        field = fields.get(name)
        if field is None:
            if name not in SHARED_PARAMETERS:
                problems.add_unbound(name)
            continue
        if field.type == "bool":
            value = value.lower()  # gcloud says True
        given: object = [*query.get(field.name, ()), value] if field.repeated else value
        kept = read_field(words, field, given, problems)
        if kept is not None:
            query[field.name] = kept
    problems.raise_if_any()
    return query


def _read(
    words: Vocabulary, message: str, data: object, path: str, problems: Problems, depth: int
) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        kind = words.type_url(message)
        if depth:
            problems.wrong(path, kind, data)
        else:
            problems.add(path, "Invalid JSON payload received: the body must be a JSON object")
        return {}
    if depth > DEPTH_MAX:
        problems.add(path, "Invalid JSON payload received: it is nested too deeply")
        return {}
    fields = words.messages[message].by_any_name
    found: dict[str, Any] = {}
    chosen: dict[str, str] = {}
    for name, value in data.items():
        field = fields.get(name)
        if field is None:
            problems.add_unknown(path, str(name))
            continue
        if value is None or field.left_aside:
            continue
        here = f"{path}.{field.snake}" if path else field.snake
        if field.name in found:
            problems.add(here, f"Invalid value at '{here}': the field is there twice")
            continue
        kept = _value(words, field, value, here, problems, depth)
        if field.one_of and kept is not None:
            other = chosen.setdefault(field.one_of, field.snake)
            if other != field.snake:
                text = (
                    f"Invalid value at '{path or message}' (oneof), oneof field "
                    f"'{field.one_of}' "
                    "is already set. "
                )
                problems.add(here, f"{text}Cannot set '{field.snake}': '{other}' is there")
        if kept is not None:
            found[field.name] = kept
    return found


def _value(
    words: Vocabulary, field: Field, value: object, here: str, problems: Problems, depth: int
) -> Any:
    if field.mapped:
        return _mapping(words, field, value, here, problems, depth)
    if not field.repeated:
        return _single(words, field, value, here, problems, depth)
    if not isinstance(value, list):
        if field.type not in words.messages or not isinstance(value, Mapping):
            problems.wrong(here, field.type, value)
            return None
        value = [value]
    found = []
    for index, item in enumerate(value):
        place = f"{here}[{index}]"
        if item is None:
            problems.wrong(place, field.type, item)
            continue
        kept = _single(words, field, item, place, problems, depth)
        # Defaults count in lists: an empty string is an item.
        found.append(_DEFAULTS.get(field.type) if kept is None else kept)
    return found if found or field.optional else None


def _mapping(
    words: Vocabulary, field: Field, value: object, here: str, problems: Problems, depth: int
) -> Any:
    if not isinstance(value, Mapping):
        problems.wrong(here, f"a map of strings to {field.type}", value)
        return None
    return {
        str(key): _single(words, field, item, f"{here}[{str(key)!r}]", problems, depth)
        for key, item in value.items()
    }


def _single(
    words: Vocabulary, field: Field, value: object, here: str, problems: Problems, depth: int
) -> Any:
    """The value in the canonical form; None for a default and for what is wrong."""
    known = words.enums.get(field.type)
    if known is not None:
        return _enum(words, field, known, value, here, problems)
    reader = _READERS.get(field.type)
    if reader is None:
        if words.is_lenient and isinstance(value, list) and not field.repeated:
            value = _join(value)
        return _read(words, field.type, value, here, problems, depth + 1)
    try:
        kept = reader(value)
    except (TypeError, ValueError, OverflowError):
        problems.wrong(here, _TYPE_NAMES.get(field.type, field.type), value)
        return None
    return kept if field.optional or kept != _DEFAULTS.get(field.type) else None


def _join(items: list[object]) -> object:
    """The fields of messages in a list as one message; what is no such list stays as it is."""
    messages = [item for item in items if isinstance(item, Mapping)]
    if len(messages) < len(items):
        return items
    return {name: value for message in messages for name, value in message.items()}


def _enum(
    words: Vocabulary,
    field: Field,
    known: Mapping[str, int],
    value: object,
    here: str,
    problems: Problems,
) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        name = words.enum_names[field.type].get(value)
    else:
        text = value.upper() if words.is_lenient and isinstance(value, str) else value
        name = text if isinstance(text, str) and text in known else None
    if name is None:
        problems.wrong(here, words.type_url(field.type), value)
        return None
    return name if known[name] else None


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    # What cannot be stored or sent on: half of a surrogate pair, NUL.
    value.encode()
    if "\0" in value:
        raise ValueError
    return value


def _bool(value: object) -> bool:
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(bits: int) -> Callable[[object], int]:
    def read_integer(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError
        if isinstance(value, str) and not _INTEGER.fullmatch(value):
            raise ValueError
        number = int(value.partition(".")[0]) if isinstance(value, str) else int(value)
        if (isinstance(value, float) and value != number) or not -(1 << bits) <= number < 1 << bits:
            raise ValueError
        return number

    return read_integer


def _timestamp(value: object) -> str:
    return PlatformTime.from_rfc3339(_string(value)).rfc3339()


def duration_nanos(text: str) -> int:
    """Nanoseconds of a duration such as `3600s` or `1.5s`; ValueError for what is none."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    nanos = int(found[1]) * NANOS_PER_SECOND + int((found[2] or "").ljust(9, "0"))
    return -nanos if text.startswith("-") else nanos


def _duration(value: object) -> str:
    text = _string(value)
    duration_nanos(text)
    return text


def _double(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return dict(value)


def _map(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {_string(key): _string(item) for key, item in value.items()}


_READERS: Mapping[str, Callable[[object], Any]] = {
    "string": _string,
    "fieldmask": _string,
    "bool": _bool,
    "int32": _integer(31),
    "int64": lambda value: str(_integer(63)(value)),
    "timestamp": _timestamp,
    "duration": _duration,
    "map": _map,
    "bytes": _string,
    "double": _double,
    "any": _object,
}
_DEFAULTS: Mapping[str, Any] = {
    "string": "",
    "fieldmask": "",
    "bool": False,
    "int32": 0,
    "int64": "0",
    "map": {},
    "bytes": "",
    "double": 0.0,
}
_TYPE_NAMES = {
    "string": "TYPE_STRING",
    "bool": "TYPE_BOOL",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "bytes": "TYPE_BYTES",
    "double": "TYPE_DOUBLE",
    "timestamp": "type.googleapis.com/google.protobuf.Timestamp",
    "duration": "type.googleapis.com/google.protobuf.Duration",
    "map": "a map of strings to strings",
}


def _quote(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 200 else text[:200] + "..."
