"""Calls of launchers, replayed: each is sent as the launcher sends it, and what the launcher reads
from the answer is compared."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.yard import Yard

PROJECT, ZONE, REGION = "demo", "us-central1-b", "us-central1"
C = f"/compute/v1/projects/{PROJECT}"
Z, R, G = f"{C}/zones/{ZONE}", f"{C}/regions/{REGION}", f"{C}/global"
LINK = f"https://www.googleapis.com{C}"
MANAGER = "/google/cloudresourcemanager.googleapis.com/v1"
IAM, SERVICES = "/google/iam.googleapis.com/v1", "/google/serviceusage.googleapis.com/v1"
LOGGING = "/google/logging.googleapis.com/v2"
TPU = f"/v2/projects/{PROJECT}/locations/{ZONE}"

Expected = Any  # a value, a pattern, or a function that tells whether a value is right


@dataclasses.dataclass(frozen=True)
class Call:
    """One call. `reads`: what must stand at a path of the answer (`disks.0.source`). `keeps`: names
    for values of the answer, which later paths name as `{name}` and bodies as `$name`. `fails`: the
    HTTP status and the reason of a refusal, with a text of its message."""

    verb: str
    path: str
    body: Any = None
    reads: Mapping[str, Expected] = dataclasses.field(default_factory=dict)
    keeps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fails: tuple[int, str, str] | None = None
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)


def get(path: str, **reads: Expected) -> Call:
    return Call("GET", path, reads=reads)


def outcome(**reads: Expected) -> Call:
    """The operation that was begun last, when it has ended well."""
    return Call("GET", "{op}", reads={"status": "DONE", "error": ABSENT, **reads})


def change(verb: str, path: str, body: Any = None, **query: str) -> list[Call]:
    """A change of Compute Engine, and the operation that it begins."""
    reads = {"kind": "compute#operation", "status": one_of("RUNNING", "DONE", "PENDING")}
    keeps = {"op": "selfLink"}
    return [Call(verb, path, body, reads, keeps, query=query), outcome()]


def absent(path: str) -> Call:
    return Call("GET", path, fails=(404, "notFound", "was not found"))


def some(value: Any) -> bool:
    """There is a value."""
    return value not in (None, "", [], {})


def a_list(value: Any) -> bool:
    """There is a list, also an empty one."""
    return isinstance(value, list)


def matching(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def names(*expected: str) -> Callable[[Any], bool]:
    """The names of a list's items."""
    return lambda items: [item["name"] for item in items or ()] == list(expected)


ABSENT = None
IP = matching(r"\d+\.\d+\.\d+\.\d+")
TIME = matching(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)")
NUMBER = matching(r"\d+")


def replay(yard: Yard, calls: Sequence[Call]) -> list[str]:
    """Every difference between what launchers read and what was answered."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for number, call in enumerate(calls, start=1):
        path = call.path.format(**values).removeprefix("https://www.googleapis.com")
        response = yard.call(call.verb, path, _fill(call.body, values), params=call.query or None)
        where = f"{number}. {call.verb} {path} {dict(call.query) or ''}"
        answer = response.json() if response.content else {}
        faults += [f"{where}: {fault}" for fault in _faults(call, response.status_code, answer)]
        values |= {name: value_at(answer, at) for name, at in call.keeps.items()}
        if call.verb != "GET":
            yard.step()  # so that what was begun ends
    return faults


def _faults(call: Call, status: int, answer: Any) -> list[str]:
    if call.fails is None:
        if status not in (200, 204):
            return [f"{status} {answer.get('error', {}).get('message', answer)}"]
        return [
            f"{at} is {value_at(answer, at)!r}, and not {_describe(wanted)}"
            for at, wanted in call.reads.items()
            if not _fits(value_at(answer, at), wanted)
        ]
    error = answer.get("error", {})
    shown = (status, value_at(error, "errors.0.reason") or error.get("status"))
    if shown == call.fails[:2] and call.fails[2] in error.get("message", ""):
        return []
    return [f"{shown} {error.get('message', answer)}, and not {call.fails}"]


def _fits(value: Any, wanted: Expected) -> bool:
    return bool(wanted(value)) if callable(wanted) else value == wanted


def _describe(wanted: Expected) -> str:
    return wanted.__qualname__ if callable(wanted) else repr(wanted)


def value_at(answer: Any, path: str) -> Any:
    """The value at `a.0.b`, or None; a slash divides where a name has points."""
    for part in path.split("/" if "/" in path else "."):
        if isinstance(answer, Mapping):
            answer = answer.get(part)
        elif isinstance(answer, list) and part.isdigit() and int(part) < len(answer):
            answer = answer[int(part)]
        else:
            return None
    return answer


def _fill(body: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(body, str) and body.startswith("$"):
        return values[body[1:]]
    if isinstance(body, Mapping):
        return {key: _fill(value, values) for key, value in body.items()}
    if isinstance(body, list):
        return [_fill(one, values) for one in body]
    return body
