"""Fault rules: what fails, where, when and how often. There are none by default.

`EFFECTS` is the one table of effects. What a rule may say, the help of the command line, the page
of the documents and the schema of the API follow from it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.durations import parse_duration
from podyard.base.errors import PodyardError, invalid
from podyard.domain.node import INTERRUPTIBLE, NODE

RULES_MAX = 256  # each is looked at wherever it could act: more are a mistake of a script
PATTERN_CHARACTERS_MAX = 256  # no name is longer
SECONDS_MAX = 10 * 365 * 86_400.0  # ten years: what is due then still has a time that can be stored
# a rule that fires more often would leave the control loop no time for anything else
EVERY_SECONDS_MIN = 1.0
COUNT_MAX = 1_000_000_000
# no client waits longer for an answer, and each one that waits holds a connection
LATENCY_SECONDS_MAX = 300.0


class Acts(StrEnum):
    """The place where an effect acts. EVENT: at moments, on nodes that are there then. The others
    hold while the rule stands: PLACING when slices are given, QUOTA when creations are counted,
    VIEW and CALL on answers of Google's API, LIFE in the life of what is asked for, HOST on
    materialised hosts, JOB on running jobs."""

    EVENT = "event"
    LIFE = "life"
    PLACING = "placing"
    QUOTA = "quota"
    VIEW = "view"
    CALL = "call"
    HOST = "host"
    JOB = "job"


class Kind(StrEnum):
    """The kind of a parameter."""

    SECONDS = "seconds"  # a number of seconds, or a duration such as 90s or 1h30m
    NUMBER = "number"
    WHOLE = "whole"
    TEXT = "text"
    FLAG = "flag"


Value = float | int | str | bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """`default` None: it may be left out and then says nothing; `required`: it may not. `choices`:
    nothing else. `least`, `most`: its bounds."""

    kind: Kind
    default: Value = None
    text: str = ""
    required: bool = False
    choices: tuple[Value, ...] = ()
    least: float = 0.0
    most: float = SECONDS_MAX


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """`keys`: what a rule with it may match by. `chance`: whether probability and count mean
    anything to it."""

    acts: Acts
    keys: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    text: str
    chance: bool = True


MATCH_KEYS = ("zone", "acceleratorType", "project", "resource", "method", "usage")
_NODE = ("zone", "acceleratorType", "project", "resource", "usage")
_CALL = ("zone", "project", "resource", "method")
_VIEW = (*_NODE, "method")


def _seconds(default: float | None, text: str, most: float = SECONDS_MAX) -> Parameter:
    return Parameter(Kind.SECONDS, default, text, most=most)


_BACK = _seconds(0.0, "after so long its chips work again; 0: never")
_STATES = tuple(sorted(NODE.states() - {"GONE"}))
_WORKER = Parameter(
    Kind.WHOLE, None, "number of the host; left out: one of them by chance", most=1_000_000
)

EFFECTS: Mapping[str, Effect] = {
    "preempt": Effect(
        Acts.EVENT,
        _NODE,
        {
            "notice": _seconds(0.0, "between the notice and taking the node back"),
            "during": Parameter(
                Kind.TEXT,
                "ready",
                "which nodes: READY ones, or while the rule stands each one that is "
                "created or deleted",
                choices=("ready", "create", "delete"),
            ),
        },
        "Takes nodes back. Without `usage`: preemptible and spot ones only.",
    ),
    "stockout": Effect(
        Acts.PLACING,
        _NODE,
        {},
        "No chips for what matches: creations of nodes fail, queued resources wait. `count` "
        "counts failed creations.",
    ),
    "quota": Effect(
        Acts.QUOTA,
        ("zone", "acceleratorType", "project", "usage"),
        {
            "limit": Parameter(
                Kind.WHOLE, None, "the limit instead of the fleet's", required=True, most=2**31 - 1
            )
        },
        "Another quota, for creations while the rule stands.",
        chance=False,
    ),
    "host": Effect(
        Acts.EVENT,
        _NODE,
        {"seconds": _BACK, "worker": _WORKER},
        "A host of a node dies, with its chips.",
    ),
    "chip": Effect(
        Acts.EVENT,
        _NODE,
        {
            "seconds": _BACK,
            "chips": Parameter(Kind.WHOLE, 1, "how many of the slice", least=1, most=1_000_000),
        },
        "Chips of a node's slice break.",
    ),
    "power": Effect(
        Acts.EVENT,
        _NODE,
        {"seconds": _BACK, "worker": _WORKER},
        "All chips of one host of a node trip.",
    ),
    "link": Effect(
        Acts.EVENT,
        _NODE,
        {
            "seconds": _seconds(0.0, "for so long; 0: for good"),
            "factor": Parameter(
                Kind.NUMBER,
                0.0,
                "below 1: it is down; else steps of jobs take so much longer",
                most=1e6,
            ),
        },
        "A link between two chips of a node's slice is down or slow.",
    ),
    "maintenance": Effect(
        Acts.EVENT,
        _NODE,
        {"seconds": _seconds(3600.0, "how long it takes")},
        "A maintenance of nodes begins.",
    ),
    "late": Effect(
        Acts.LIFE,
        _NODE,
        {"seconds": Parameter(Kind.SECONDS, None, "how much later", required=True)},
        "A queued resource is fulfilled later than it would be, if it is still there then.",
    ),
    "stale": Effect(
        Acts.VIEW,
        _VIEW,
        {"seconds": Parameter(Kind.SECONDS, None, "how old", required=True)},
        "States of nodes and queued resources are shown as they were.",
    ),
    "dirty": Effect(
        Acts.VIEW,
        _VIEW,
        {
            "as": Parameter(Kind.TEXT, "UNKNOWN", "the state that is shown", choices=_STATES),
            "state": Parameter(Kind.TEXT, "PREEMPTED", "the state that is hidden", choices=_STATES),
        },
        "A state of nodes is shown as another one.",
    ),
    "health": Effect(Acts.VIEW, _VIEW, {}, "The field `health` of nodes is missing."),
    "error": Effect(
        Acts.CALL,
        _CALL,
        {
            "code": Parameter(Kind.WHOLE, 503, "the HTTP status", choices=(429, 500, 503, 504)),
            "message": Parameter(Kind.TEXT, None, "what the error says"),
        },
        "Calls fail, and have no effect.",
    ),
    "latency": Effect(
        Acts.CALL,
        _CALL,
        {
            "seconds": _seconds(1.0, "how long", LATENCY_SECONDS_MAX),
            "real": Parameter(Kind.FLAG, True, "of real time; false: of platform time"),
        },
        "Calls wait before they are carried out.",
    ),
    "lostAnswer": Effect(
        Acts.CALL,
        _CALL,
        {
            "close": Parameter(
                Kind.FLAG, False, "the connection ends without an answer, instead of status 503"
            )
        },
        "Calls have their effect, and the caller is not told.",
    ),
    "lostOperation": Effect(
        Acts.LIFE,
        _CALL,
        {},
        "Operations that begin are never found; `resource` is what they act on.",
    ),
    "metadata": Effect(
        Acts.HOST,
        _NODE,
        {
            "worker": Parameter(
                Kind.WHOLE, None, "number of the host; left out: all", most=1_000_000
            )
        },
        "The metadata servers of hosts answer 503.",
        chance=False,
    ),
    "checkpoint": Effect(
        Acts.JOB, _NODE, {}, "Checkpoints of jobs cannot be written; the jobs go on."
    ),
    "jump": Effect(
        Acts.EVENT,
        (),
        {"seconds": Parameter(Kind.SECONDS, None, "how far", required=True)},
        "The virtual clock is advanced.",
    ),
}

_COMMON = ("effect", "match", "probability", "count", "from", "until", "every")
_FRACTION = re.compile(r"\d+(\.\d+)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a rule, as far as it is known. `names`: what `resource` is compared with."""

    zone: str = ""
    accelerator_type: str = ""
    project: str = ""
    names: tuple[str, ...] = ()
    method: str = ""
    usage: str = ""

    def values(self, key: str) -> tuple[str, ...]:
        """Return what the pattern of a match key is compared with."""
        if key == "resource":
            return self.names
        return (getattr(self, "accelerator_type" if key == "acceleratorType" else key),)


@dataclasses.dataclass(frozen=True, slots=True)
class BrokenChips:
    """Chips that are given to nobody until they work again: `until`, or None: until the rule is
    removed. `node_key` had them in its slice, and was moved to `node_version` by the fault. `chips`
    is a bit set of the pod's chips."""

    break_id: str
    fault_id: str
    pod_id: str
    chips: int
    until: PlatformTime | None
    reason: str
    node_key: str
    node_version: int


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFault:
    """The fault that waits for a node: `preempt` at `at`, or `slow`: until `at` its jobs' steps
    take `factor` times as long. `node_version` 0: whatever has become of the node."""

    node_fault_id: str
    fault_id: str
    node_key: str
    node_version: int
    kind: str
    at: PlatformTime | None
    factor: float
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class FaultRule:
    """`starts` and `ends` are platform time; `ends` None: it stands until it is removed. An event
    happens at `starts` and then each `every_seconds`. `fired` counts what it has hit, at most
    `count`. `over`: it will act no more."""

    fault_id: str
    effect: str
    match: Mapping[str, str]
    probability: float
    count: int | None
    starts: PlatformTime
    ends: PlatformTime | None
    every_seconds: float | None
    parameters: Mapping[str, Any]
    created: PlatformTime
    fired: int = 0
    over: bool = False

    @property
    def acts(self) -> Acts:
        return EFFECTS[self.effect].acts

    @property
    def is_event(self) -> bool:
        """Return whether it happens at moments; a preemption while nodes are created or deleted
        holds as long as it stands."""
        return _at_moments(EFFECTS[self.effect], self.parameters)

    @property
    def times_left(self) -> int | None:
        """Return how often it may still act; None: without a limit."""
        return None if self.count is None else max(0, self.count - self.fired)

    @property
    def seconds(self) -> float:
        """Of the effects that last, or that come later, for so long."""
        return float(self.parameters["seconds"])

    @property
    def worker(self) -> int | None:
        """The host that the rule names; None: one by chance, or all."""
        return self.parameters.get("worker")

    def stands(self, now: PlatformTime) -> bool:
        begun = self.starts <= now and (self.ends is None or now < self.ends)
        return begun and not self.over and self.times_left != 0

    def matches(self, subject: Subject) -> bool:
        """Return whether each pattern fits. A preemption takes an on-demand or reserved node only
        where `usage` says so."""
        if (
            self.effect == "preempt"
            and "usage" not in self.match
            and subject.usage not in INTERRUPTIBLE
        ):
            return False
        return all(
            any(fnmatchcase(value, pattern) for value in subject.values(key))
            for key, pattern in self.match.items()
        )

    @property
    def reason(self) -> str:
        """Return what everything that it does says."""
        return f"fault {self.fault_id}: {self.effect}"


def parse_rule(data: Any, now: PlatformTime, fault_id: str = "", place: str = "") -> FaultRule:
    """The rule that JSON or YAML says; durations in `from` and `until` count from `now`.

    Raises INVALID_ARGUMENT that names the field; `place` is what stands before it, such as
    `faults[2]`.
    """
    reader = _RuleReader(place)
    if not isinstance(data, Mapping):
        raise reader.wrong("", f"a fault is a mapping with {', '.join(_COMMON)} and parameters")
    name = data.get("effect")
    effect = EFFECTS.get(name) if isinstance(name, str) else None
    if effect is None or not isinstance(name, str):
        raise reader.wrong("effect", f"unknown effect {name!r}: use {', '.join(EFFECTS)}")
    for key in data:
        if key not in _COMMON and key not in effect.parameters:
            known = ", ".join((*_COMMON, *effect.parameters))
            raise reader.wrong(str(key), f"unknown: {name} takes {known}")
    match = reader.match(data.get("match"), name, effect)
    parameters = {
        key: reader.parameter(data.get(key), key, effect.parameters[key])
        for key in effect.parameters
    }
    is_event = _at_moments(effect, parameters)
    for key in ("probability", "count"):
        if not effect.chance and data.get(key) is not None:
            raise reader.wrong(key, f"{name} holds or does not: it takes no {key}")
    starts = reader.moment(data.get("from"), "from", now) or now
    ends = reader.moment(data.get("until"), "until", now)
    if ends is not None and ends <= starts:
        raise reader.wrong("until", "it ends before it begins")
    every = reader.number(
        data.get("every"), "every", Parameter(Kind.SECONDS, least=EVERY_SECONDS_MIN)
    )
    if every is not None and not is_event:
        raise reader.wrong("every", f"{name} is not an event: it lasts from `from` until `until`")
    probability = reader.number(
        data.get("probability"), "probability", Parameter(Kind.NUMBER, most=1.0)
    )
    count = reader.whole(data.get("count"), "count", Parameter(Kind.WHOLE, least=1, most=COUNT_MAX))
    return FaultRule(
        fault_id=fault_id,
        effect=name,
        match=match,
        probability=1.0 if probability is None else probability,
        count=count,
        starts=max(starts, now),
        ends=ends,
        every_seconds=every,
        parameters={key: value for key, value in parameters.items() if value is not None},
        created=now,
    )


def _at_moments(effect: Effect, parameters: Mapping[str, Any]) -> bool:
    return effect.acts is Acts.EVENT and parameters.get("during", "ready") == "ready"


def parse_rules(items: Any, now: PlatformTime, place: str = "faults") -> list[FaultRule]:
    """A list of rules, all or none; raises INVALID_ARGUMENT that names item and field."""
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise invalid(f"{place} must be a list", place)
    if len(items) > RULES_MAX:
        raise invalid(f"{place} has {len(items)} rules: the maximum is {RULES_MAX}", place)
    return [parse_rule(item, now, place=f"{place}[{index}]") for index, item in enumerate(items)]


def rule_json(rule: FaultRule) -> dict[str, Any]:
    """As it may be given again, with times for durations."""
    found: dict[str, Any] = {"effect": rule.effect, "match": dict(rule.match), **rule.parameters}
    if EFFECTS[rule.effect].chance:
        found["probability"] = rule.probability
    if rule.count is not None:
        found["count"] = rule.count
    found["from"] = rule.starts.rfc3339()
    if rule.ends is not None:
        found["until"] = rule.ends.rfc3339()
    if rule.every_seconds is not None:
        found["every"] = rule.every_seconds
    return found


class _RuleReader:
    """Reads fields of one rule; every error names its field."""

    def __init__(self, place: str) -> None:
        self._place = place

    def wrong(self, field: str, why: str) -> PodyardError:
        where = f"{self._place}.{field}".strip(".")
        return invalid(f"{where}: {why}" if where else why, where or None)

    def match(self, given: Any, name: str, effect: Effect) -> dict[str, str]:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise self.wrong("match", f"a mapping of {', '.join(MATCH_KEYS)} to patterns")
        found = {}
        for key, pattern in given.items():
            if key not in effect.keys:
                can = ", ".join(effect.keys) or "nothing"
                raise self.wrong(f"match.{key}", f"{name} cannot be matched by it: by {can}")
            if not isinstance(pattern, str) or not 0 < len(pattern) <= PATTERN_CHARACTERS_MAX:
                raise self.wrong(
                    f"match.{key}", f"a pattern of at most {PATTERN_CHARACTERS_MAX} characters"
                )
            found[str(key)] = pattern
        return found

    def parameter(self, given: Any, key: str, wanted: Parameter) -> Value:
        if given is None:
            if wanted.required:
                raise self.wrong(key, "it is missing")
            return wanted.default
        value: Value
        if wanted.kind is Kind.FLAG:
            if not isinstance(given, bool):
                raise self.wrong(key, f"{given!r} must be true or false")
            return given
        if wanted.kind is Kind.TEXT:
            if not isinstance(given, str) or len(given) > PATTERN_CHARACTERS_MAX:
                raise self.wrong(key, f"a text of at most {PATTERN_CHARACTERS_MAX} characters")
            value = given
        elif wanted.kind is Kind.WHOLE:
            value = self.whole(given, key, wanted)
        else:
            value = self.number(given, key, wanted)
        if wanted.choices and value not in wanted.choices:
            raise self.wrong(
                key, f"unknown value {value!r}: use {', '.join(map(str, wanted.choices))}"
            )
        return value

    def whole(self, given: Any, key: str, wanted: Parameter) -> int | None:
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int):
            raise self.wrong(key, f"{_quote(given)} is not a whole number")
        if not wanted.choices and not wanted.least <= given <= wanted.most:
            raise self.wrong(
                key, f"{_quote(given)} is not from {wanted.least:g} to {wanted.most:g}"
            )
        return given

    def number(self, given: Any, key: str, wanted: Parameter) -> float | None:
        if given is None:
            return None
        if wanted.kind is Kind.SECONDS and isinstance(given, str):
            given = self._duration(given, key) / NANOS_PER_SECOND
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise self.wrong(key, f"{_quote(given)} is not a number")
        if not (math.isfinite(given) and wanted.least <= given <= wanted.most):
            raise self.wrong(
                key, f"{_quote(given)} is not from {wanted.least:g} to {wanted.most:g}"
            )
        return float(given)

    def moment(self, given: Any, key: str, now: PlatformTime) -> PlatformTime | None:
        """A time, or a length of time from `now`."""
        if given is None:
            return None
        if isinstance(given, str) and not given[:1].isdigit():
            raise self.wrong(key, f"{_quote(given)} must be a time or a duration")
        if not isinstance(given, str) or not re.match(r"\d{4}-", given):
            seconds = self.number(given, key, Parameter(Kind.SECONDS))
            return None if seconds is None else now.plus_seconds(seconds)
        try:
            return PlatformTime.from_rfc3339(given)
        except ValueError as error:
            raise self.wrong(key, str(error)) from None

    def _duration(self, given: str, key: str) -> int:
        try:
            return parse_duration(f"{given}s" if _FRACTION.fullmatch(given) else given)
        except ValueError as error:
            raise self.wrong(key, str(error)) from None


def _quote(value: Any) -> str:
    return repr(value)[:60]
