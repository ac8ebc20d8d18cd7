"""Requests of tenants: arrivals as a Poisson process with a daily pattern, drawn from a seed, or
from a trace.

The numbers are ours, chosen so that each path of the control plane is taken: they do not describe
any real fleet.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from csv import DictReader
from pathlib import Path
from typing import Any

from podyard.base.errors import PodyardError, invalid
from podyard.base.rng import Random, Streams
from podyard.domain.fleet import Fleet
from podyard.domain.node import UsageClass
from podyard.hardware.accelerator_types import AcceleratorType, parse
from podyard.simulation.scenario import DAY_SECONDS, Event

PATTERN = 0.6  # by day there are 1.6 times as many arrivals as on average, by night 0.4 times
# of one slice: larger ones are rare, and one of them would empty a small fleet
TYPE_CHIPS_MAX = 256
LIFE_HOURS = (4.0, 120.0)  # of a node on average, in a short run and in a long one
# in between: so many after each other, that there is something to see in each run
LIVES_PER_RUN = 6.0
HOUR_SECONDS = 3_600.0
EVENTS_MAX = 5_000_000  # of one run: what a machine's memory holds
_TRACE_FIELDS = ("submit_time", "type", "duration", "priority")
_PRIORITY_SPOT, _PRIORITY_ON_DEMAND = 0, 100  # as Kubernetes and Borg count: higher is more urgent


@dataclasses.dataclass(frozen=True, slots=True)
class Tenant:
    """A project and its habits: shares of its requests, from 0 to 1. What is neither queued nor
    made for a job is a plain node."""

    project: str
    weight: float
    usage: Mapping[UsageClass, float]
    queued: float
    own_jobs: float
    multislice: float = 0.0


TENANTS = (
    Tenant(
        "atlas",
        0.4,
        {UsageClass.ON_DEMAND: 0.7, UsageClass.RESERVED: 0.2, UsageClass.SPOT: 0.1},
        0.2,
        0.1,
    ),
    Tenant(
        "bora",
        0.35,
        {UsageClass.SPOT: 0.6, UsageClass.PREEMPTIBLE: 0.3, UsageClass.ON_DEMAND: 0.1},
        0.1,
        0.2,
    ),
    Tenant(
        "ceres", 0.25, {UsageClass.ON_DEMAND: 0.4, UsageClass.SPOT: 0.6}, 0.8, 0.1, multislice=0.4
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Request:
    at: float
    life: float
    tenant: Tenant
    zone: str
    kind: AcceleratorType
    usage: UsageClass

    def where(self) -> dict[str, Any]:
        """The arguments that say what is asked for, and where."""
        place = {"project": self.tenant.project, "zone": self.zone}
        return {**place, "type": self.kind.name, "usage": str(self.usage)}


def draw(streams: Streams, fleet: Fleet, days: float, nodes: int) -> list[Event]:
    """Events of a run with about `nodes` nodes alive, in no order."""
    chance = streams.stream("workload")
    hours = min(max(days * 24.0 / LIVES_PER_RUN, LIFE_HOURS[0]), LIFE_HOURS[1])
    events = list(_reservations(fleet, nodes))
    for number, at in enumerate(
        _arrivals(chance, days * DAY_SECONDS, nodes / (hours * HOUR_SECONDS))
    ):
        tenant = chance.choices(TENANTS, [tenant.weight for tenant in TENANTS])[0]
        zone, kind = _what(chance, fleet)
        usage = chance.choices(list(tenant.usage), list(tenant.usage.values()))[0]
        request = _Request(
            at, chance.expovariate(1.0 / (hours * HOUR_SECONDS)), tenant, zone, kind, usage
        )
        events += _life(chance, request, number)
    return [event for event in events if event.at < days * DAY_SECONDS]


def _arrivals(chance: Random, seconds: float, per_second: float) -> Iterator[float]:
    """Times of a Poisson process whose rate follows the time of day (thinning)."""
    at = 0.0
    while True:
        at += chance.expovariate(per_second * (1.0 + PATTERN))
        if at >= seconds:
            return
        rate = 1.0 + PATTERN * math.sin(2.0 * math.pi * (at / DAY_SECONDS - 0.25))
        if chance.random() * (1.0 + PATTERN) < rate:
            yield round(at, 3)


def _what(chance: Random, fleet: Fleet) -> tuple[str, AcceleratorType]:
    """A zone and a type that it offers; small ones are asked for more often."""
    zone = chance.choice(sorted(fleet.zones))
    most = min(TYPE_CHIPS_MAX, sum(pod.chip_count for pod in fleet.zones[zone].pods) // 2)
    kinds = [kind for kind in fleet.offered_types(zone) if kind.chip_count <= most]
    return zone, chance.choices(kinds, [kind.chip_count**-0.9 for kind in kinds])[0]


def _life(chance: Random, request: _Request, number: int) -> Iterator[Event]:
    draw = chance.random()
    tenant = request.tenant
    if draw < tenant.queued:
        return _queue_events(chance, request, f"q-{number}")
    if draw < tenant.queued + tenant.own_jobs:
        return _job(chance, request, f"j-{number}", None)
    return _plain(chance, request, f"n-{number}")


def _plain(chance: Random, request: _Request, name: str) -> Iterator[Event]:
    at, life = request.at, request.life
    create: dict[str, Any] = request.where()
    if chance.random() < 0.2:
        create["request_id"] = f"00000000-0000-4000-8000-{chance.getrandbits(48):012x}"
        # its answer was lost
        yield Event(round(at + chance.uniform(0.1, 900.0), 3), "create", name, create)
    yield Event(at, "create", name, create)
    if chance.random() < 0.05:
        life = chance.uniform(1.0, 100.0)  # given up while it is made, or just after
    if request.kind.is_single_host and chance.random() < 0.2:
        stop = chance.uniform(0.2, 0.6) * life
        yield Event(round(at + stop, 3), "stop", name)
        yield Event(round(at + stop + chance.uniform(0.01, 0.3) * life, 3), "start", name)
    if chance.random() < 0.15:
        changes = {"labels": {"team": f"t{chance.randrange(5)}"}}
        yield Event(round(at + chance.uniform(0.2, 0.9) * life, 3), "patch", name, changes)
    if chance.random() < 0.2:
        begin = at + chance.uniform(120.0, 600.0)
        yield from _job(
            chance, dataclasses.replace(request, at=round(begin, 3)), f"j{name[1:]}", name
        )
    yield Event(round(at + life, 3), "delete", name)


def _queue_events(chance: Random, request: _Request, name: str) -> Iterator[Event]:
    at, life = request.at, request.life
    args: dict[str, Any] = request.where()
    if chance.random() < request.tenant.multislice and request.kind.chip_count <= 32:
        args["count"] = chance.randrange(2, 5)
    if chance.random() < 0.15:
        args["valid_after"] = round(chance.uniform(60.0, 0.4 * life + 61.0), 3)
    if chance.random() < 0.4:
        args["valid_until"] = round(
            args.get("valid_after", 0.0) + chance.uniform(30.0, 6 * HOUR_SECONDS), 3
        )
    if chance.random() < 0.2:
        args["run_seconds"] = round(chance.uniform(0.2, 0.8) * life, 3)
    yield Event(at, "queue", name, args)
    if chance.random() < 0.15:
        yield Event(round(at + chance.uniform(0.3, 0.8) * life, 3), "reset", name)
    if chance.random() < 0.2:
        on_slice = f"{name}-0" if "count" in args else f"{name}-n"
        begin = dataclasses.replace(
            request, at=round(at + chance.uniform(0.05, 0.4) * life + 100.0, 3)
        )
        yield from _job(chance, begin, f"j{name[1:]}", on_slice)
    yield Event(round(at + life, 3), "unqueue", name)


def _job(chance: Random, request: _Request, name: str, node: str | None) -> Iterator[Event]:
    """A job on a node that is there, or (None) on one that is made for it. It takes a part of the
    node's life."""
    seconds = min(chance.expovariate(1.0 / (4 * HOUR_SECONDS)), 0.7 * request.life) + 60.0
    steps = chance.choice((4, 6, 8, 12))
    args: dict[str, Any] = request.where()
    args |= {
        "steps": steps,
        "every": chance.choice((2, 3, 4)),
        "step_seconds": round(seconds / steps, 3),
    }
    if node is not None:
        args["node"] = node
    if chance.random() < 0.25:
        args["elastic"] = True
    yield Event(request.at, "job", name, args)
    if chance.random() < 0.08:
        yield Event(round(request.at + chance.uniform(0.0, 1.2) * seconds, 3), "cancel", name)


def _reservations(fleet: Fleet, nodes: int) -> Iterator[Event]:
    """Each tenant that buys reserved nodes has a reservation in each zone: of a tenth of its
    chips."""
    for tenant in TENANTS:
        if UsageClass.RESERVED not in tenant.usage:
            continue
        for zone in sorted(fleet.zones):
            for generation, offer in fleet.zones[zone].offers.items():
                size = max(8, sum(pod.chip_count for pod in offer.pods) // 10)
                args = {
                    "project": tenant.project,
                    "zone": zone,
                    "generation": generation,
                    "size": size,
                }
                yield Event(0.0, "reserve", f"r-{generation}-{nodes}", args)


def of_trace(path: Path, fleet: Fleet) -> list[Event]:
    """Nodes of a trace: CSV with a header, or JSONL, with submit_time (seconds from the beginning),
    type, duration (seconds) and priority (an integer; from 100 on the node is on-demand, else
    spot).

    Raises INVALID_ARGUMENT that names the line and the field that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise invalid(f"cannot read {path}: {error.strerror}") from error
    rows = _jsonl(path, text) if text.lstrip().startswith("{") else _csv(path, text)
    events: list[Event] = []
    for line, row in rows:
        events += _of_row(f"{path}: line {line}", row, fleet, line)
    if len(events) > EVENTS_MAX:
        raise invalid(f"{path} has more than {EVENTS_MAX // 2} lines")
    return events


def _csv(path: Path, text: str) -> list[tuple[int, Mapping[str, Any]]]:
    reader = DictReader(text.splitlines())
    missing = [name for name in _TRACE_FIELDS if name not in (reader.fieldnames or ())]
    if missing:
        raise invalid(f"{path}: line 1: the header lacks {', '.join(missing)}")
    return [(reader.line_num, row) for row in reader]


def _jsonl(path: Path, text: str) -> list[tuple[int, Mapping[str, Any]]]:
    rows: list[tuple[int, Mapping[str, Any]]] = []
    for line, part in enumerate(text.splitlines(), 1):
        if not part.strip():
            continue
        try:
            row = json.loads(part)
        except ValueError as error:
            raise invalid(f"{path}: line {line}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise invalid(f"{path}: line {line}: not an object with {', '.join(_TRACE_FIELDS)}")
        rows.append((line, row))
    return rows


def _of_row(place: str, row: Mapping[str, Any], fleet: Fleet, line: int) -> Sequence[Event]:
    at, duration = (_number(place, row, name) for name in ("submit_time", "duration"))
    priority = _number(place, row, "priority")
    text = row.get("type")
    try:
        kind = parse(str(text))
    except PodyardError as error:
        raise invalid(f"{place}: type is {text!r}: {error.message}") from error
    zone = next((name for name in fleet.zones if kind in fleet.offered_types(name)), None)
    if zone is None:
        raise invalid(f"{place}: type is {text!r}: no zone of the fleet offers it")
    tenant = TENANTS[line % len(TENANTS)]
    usage = UsageClass.ON_DEMAND if priority >= _PRIORITY_ON_DEMAND else UsageClass.SPOT
    where = _Request(at, duration, tenant, zone, kind, usage).where()
    return Event(at, "create", f"t-{line}", where), Event(at + duration, "delete", f"t-{line}")


def _number(place: str, row: Mapping[str, Any], name: str) -> float:
    try:
        value = float(row[name])
    except KeyError:
        raise invalid(f"{place}: {name} is missing") from None
    except (TypeError, ValueError):
        raise invalid(f"{place}: {name} is {row[name]!r}: it must be a number") from None
    if not _PRIORITY_SPOT <= value < math.inf:
        raise invalid(f"{place}: {name} is {row[name]!r}: it must be a number of 0 or more")
    return value
