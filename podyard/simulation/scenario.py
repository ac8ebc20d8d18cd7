"""Parts of a simulation: a seed, a length, a size, a fleet, and the list of events that happen in
it.

All chance that does not depend on how the run goes is in the list of events, drawn before the run
begins. So a run can be repeated with some of its events left out, which is how a failing one is
made shorter, and written to a file.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from podyard.base.errors import PodyardError, invalid
from podyard.domain import fault_file, yaml_file
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import load_fleet
from podyard.domain.yaml_file import YamlFile

DAY_SECONDS = 86_400.0
# ten years: past it, times would leave what RFC 3339 texts of this program can show
DAYS_MAX = 3_660.0
NODES_MAX = 100_000  # more than the largest fleet holds
FAULTS_PER_DAY_USUAL = 20.0
_KEYS = {"description", "seed", "days", "nodes", "faultsPerDay", "trace", "events", fault_file.KEY}

# Pods for few nodes and for many: the demand of the usual workload is about three quarters of the
# chips, so that some requests wait and some find no room.
_SMALL = (
    "{{v5e: {{shape: 4x4, pods: {n}}}}}",
    "{{v3: {{shape: 4x4, pods: {n}}}}}",
    "{{v4: {{shape: 4x4x4, pods: {n}}}}}",
)
_LARGE = (
    "{{v5e: {{pods: {n}}}}}",
    "{{v3: {{shape: 16x16, pods: {n}}}}}",
    "{{v4: {{shape: 8x8x8, pods: {n}}}}}",
)
LARGE_NODES = 64
_FLEET = """
zones:
  us-central1-a: {0}
  us-east1-d: {1}
  us-central2-b: {2}
timings:
  {{create_seconds: 95, delete_seconds: 40, stop_seconds: 25, start_seconds: 60, restart_seconds: 30,
    reimage_seconds: 70, maintenance_seconds: 1800}}
quotas: {{default: {3}}}
unpriced:
  - {{generation: v4, usage: [preemptible]}}
  - {{generation: v5e, usage: [preemptible]}}
"""  # noqa: E501


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that a tenant or the world does `at` seconds after the beginning. `name` is what it
    is done to; where that is not there (its creation was refused, or left out), nothing happens."""

    at: float
    do: str
    name: str
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "do": self.do, "name": self.name, **self.args}


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """`events` None: drawn from the seed (and those of `trace`, where there is one, instead of the
    usual arrivals). `rules`: fault rules that are there besides, from the beginning."""

    seed: int = 0
    days: float = 1.0
    nodes: int = 10
    faults_per_day: float = FAULTS_PER_DAY_USUAL
    trace: str | None = None
    events: tuple[Event, ...] | None = None
    rules: tuple[Event, ...] = ()

    def command(self) -> str:
        """The command line that repeats a run whose events are drawn."""
        trace = f" --trace {self.trace}" if self.trace else ""
        faults = (
            ""
            if self.faults_per_day == FAULTS_PER_DAY_USUAL
            else f" --faults-per-day {self.faults_per_day:g}"
        )
        return (
            f"podyard simulate --seed {self.seed} --days {self.days:g} --nodes "
            f"{self.nodes}{faults}{trace}"
        )

    def as_yaml(self) -> str:
        """A scenario file that repeats exactly this."""
        data: dict[str, Any] = {"seed": self.seed, "days": self.days, "nodes": self.nodes}
        data["faultsPerDay"] = self.faults_per_day
        if self.trace is not None:
            data["trace"] = self.trace
        if self.rules:
            data[fault_file.KEY] = [event.args["rule"] for event in self.rules]
        if self.events is not None:
            data["events"] = [event.as_json() for event in self.events]
        return str(yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110))


def check(scenario: Scenario) -> Scenario:
    """Raises INVALID_ARGUMENT that names what is out of bounds."""
    if not 0 < scenario.days <= DAYS_MAX:
        raise invalid(
            f"days is {scenario.days:g}: it must be above 0 and at most {DAYS_MAX:g}", "days"
        )
    if not 1 <= scenario.nodes <= NODES_MAX:
        raise invalid(f"nodes is {scenario.nodes}: it must be from 1 to {NODES_MAX}", "nodes")
    if not 0 <= scenario.faults_per_day < math.inf:
        raise invalid(
            f"faultsPerDay is {scenario.faults_per_day:g}: it must be 0 or more", "faultsPerDay"
        )
    if not 0 <= scenario.seed < 2**63:
        raise invalid(f"seed is {scenario.seed}: it must be from 0 to 2^63 - 1", "seed")
    return scenario


def fleet_for(nodes: int) -> Fleet:
    """The fleet of a simulation of so many nodes alive, with timings above zero and a quota that is
    sometimes used up.

    Zones and generations have prices in the rate card, except for the preemptible ones, whose usage
    is held.
    """
    large = nodes >= LARGE_NODES
    count = math.ceil(nodes / (LARGE_NODES if large else 10))
    pods = [text.format(n=count) for text in (_LARGE if large else _SMALL)]
    return load_fleet(_FLEET.format(*pods, max(48, nodes * 6)))


def read(path: Path) -> Scenario:
    """A scenario file: seed, days, nodes, faultsPerDay, trace, events (each with at, do and name),
    and the fault rules that stand from the beginning (`faults`, as `podyard fault add --file` reads
    them; `description` is for people).

    Raises INVALID_ARGUMENT that names the line and the field that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise invalid(f"cannot read {path}: {error.strerror}") from error
    file = _File(path, yaml_file.parse(text, str(path), invalid))
    data = file.yaml.data
    if not isinstance(data, dict):
        raise invalid(f"{path}: line 1: a scenario is a mapping of {', '.join(sorted(_KEYS))}")
    for key in data:
        if key not in _KEYS:
            raise file.wrong(str(key), f"unknown key {key!r}: one of {', '.join(sorted(_KEYS))}")
    rules = fault_file.faults_of(file.yaml, str(path)) if fault_file.KEY in data else []
    found = Scenario(
        seed=_number(data, "seed", int, 0, file),
        days=_number(data, "days", float, 1.0, file),
        nodes=_number(data, "nodes", int, 10, file),
        faults_per_day=_number(data, "faultsPerDay", float, FAULTS_PER_DAY_USUAL, file),
        trace=None if data.get("trace") is None else str(path.parent / str(data["trace"])),
        rules=tuple(
            Event(0.0, "rule", f"faults[{index}]", {"rule": rule})
            for index, rule in enumerate(rules)
        ),
        events=None if data.get("events") is None else _events(data["events"], file),
    )
    return check(found)


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    path: Path
    yaml: YamlFile

    def wrong(self, place: str, why: str) -> PodyardError:
        """`place`: such as `events[2]`."""
        return invalid(f"{self.path}: line {self.yaml.line_of(place)}: {why}")


def _events(items: Any, file: _File) -> tuple[Event, ...]:
    from podyard.simulation.kinds import KINDS

    if not isinstance(items, list):
        raise file.wrong("events", "events must be a list")
    found = []
    for index, item in enumerate(items):
        place = f"events[{index}]"
        if not isinstance(item, dict):
            raise file.wrong(place, f"{place} is not a mapping with at, do and name")
        at, do = item.get("at"), item.get("do")
        if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < math.inf:
            raise file.wrong(place, f"{place}.at is {at!r}: seconds after the beginning")
        if not isinstance(do, str) or do not in KINDS:
            raise file.wrong(place, f"{place}.do is {do!r}: one of {', '.join(sorted(KINDS))}")
        wanted = KINDS[do]
        for key in sorted(set(item) - {"at", "do", "name"} - set(wanted)):
            raise file.wrong(
                place, f"{place}.{key}: {do} takes {', '.join(sorted(wanted)) or 'nothing'}"
            )
        args = {key: value for key, value in item.items() if key not in ("at", "do", "name")}
        for key, value in args.items():
            if not isinstance(value, wanted[key]) or (
                isinstance(value, bool) and wanted[key] is not bool
            ):
                raise file.wrong(
                    f"{place}.{key}", f"{place}.{key} is {value!r}, which is of the wrong kind"
                )
        found.append(Event(float(at), do, str(item.get("name", "")), args))
    return tuple(sorted(found, key=lambda event: event.at))


def _number(data: Mapping[str, Any], key: str, kind: type, usual: Any, file: _File) -> Any:
    value = data.get(key, usual)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (kind is int and value != int(value))
    ):
        raise file.wrong(key, f"{key} is {value!r}: it must be a number")
    return kind(value)
