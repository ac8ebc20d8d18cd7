"""A run of a scenario, and what is to be said of it."""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from podyard.base.money import Amount
from podyard.base.rng import Streams
from podyard.control.billing import usages
from podyard.control.checks.fsck import Violation
from podyard.db.store.state_hash import state_hash
from podyard.db.views.decisions import Decision, decisions
from podyard.domain.principal import PLATFORM
from podyard.hardware.accelerator_types import kind_of
from podyard.pricing.current_card import default_rate_card
from podyard.simulation import actions, faults, hosts, workload
from podyard.simulation.digest import decision_hash
from podyard.simulation.invariants import Watch
from podyard.simulation.kinds import FAULTS
from podyard.simulation.scenario import DAY_SECONDS, LARGE_NODES, Event, Scenario, check, fleet_for
from podyard.simulation.world import PROJECT_NAMES, World

_AGENT_PLACES_LEAST = 8
COST_DECIMALS = 9
OFTEN_SECONDS = 3 * 3600.0  # how often all that lives is looked at where it is little
SELDOM_SECONDS = 5 * DAY_SECONDS  # and where it is much: what changes is looked at in each step
# What is asked for here begins at once; everything else begins with the walk to the next event.
_AT_ONCE = frozenset({"job", *FAULTS})


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """`events`: state changes that were written; `decisions`: the same ones, named by their
    resources.
    `waits`: platform seconds from a request to its first READY. `utilisation`: READY chip-seconds
    in parts of all. `stopped_by`: a failure of the code itself, which ended it."""

    seed: int
    days: float
    events: int
    faults: int
    violations: Sequence[Violation]
    state_hash: str
    decisions: Sequence[Decision] = dataclasses.field(repr=False)
    utilisation: float
    waits: tuple[float, float, float]
    preemptions: int
    cost: Amount
    stopped_by: str = ""

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "seed": self.seed,
            "days": self.days,
            "events": self.events,
            "faults": self.faults,
            "violations": [item.as_json() for item in self.violations],
            "state_hash": self.state_hash,
            "decision_hash": self.decision_hash,
            "utilisation": round(self.utilisation, 6),
            "waits": dict(zip(("p50", "p95", "max"), self.waits, strict=True)),
            "preemptions": self.preemptions,
            "cost": self.cost.text(COST_DECIMALS),
        }
        return {**found, "stopped_by": self.stopped_by} if self.stopped_by else found

    @property
    def decision_hash(self) -> str:
        return decision_hash(self.decisions)

    @property
    def is_failure(self) -> bool:
        return bool(self.violations) or bool(self.stopped_by)


def draw_events(scenario: Scenario) -> tuple[Event, ...]:
    """The events of a scenario, in the order in which they happen."""
    if scenario.events is not None:
        return (*scenario.rules, *scenario.events)
    streams = Streams(scenario.seed)
    fleet = fleet_for(scenario.nodes)
    if scenario.trace is not None:
        work = workload.of_trace(Path(scenario.trace), fleet)
    else:
        work = workload.draw(streams, fleet, scenario.days, scenario.nodes)
    found = [
        *scenario.rules,
        *work,
        *hosts.draw(streams, work),
        *faults.draw(streams, work, scenario.days, scenario.faults_per_day),
    ]
    # stable: what was drawn first comes first
    return tuple(sorted(found, key=lambda event: event.at))


def simulate(scenario: Scenario) -> Result:
    """Runs it to its end, or to the first step after which an invariant is broken."""
    check(scenario)
    events = draw_events(scenario)
    world = World(
        scenario.seed, fleet_for(scenario.nodes), max(_AGENT_PLACES_LEAST, scenario.nodes)
    )
    watch = Watch(world, SELDOM_SECONDS if scenario.nodes >= LARGE_NODES else OFTEN_SECONDS)
    stopped_by = ""
    try:
        _walk(world, watch, events, scenario.days * DAY_SECONDS)
        if not watch.found:
            watch.end()
    except Exception as error:
        # A failure of the code under test is a finding like any other: it is reported with its
        # seed.
        place = traceback.extract_tb(error.__traceback__)[-1]
        stopped_by = f"{type(error).__name__} in {place.name}: {error}"
    try:
        return _result(scenario, events, world, watch, stopped_by)
    finally:
        world.close()


def _walk(world: World, watch: Watch, events: Sequence[Event], end: float) -> None:
    waiting = [event for event in reversed(events) if event.at < end]
    at = 0.0
    while at < end and not watch.found:
        mark = world.next_mark()
        at = min(end, waiting[-1].at if waiting else end)
        if mark is not None:
            at = min(at, max(mark.seconds_since(world.start), 0.0))
        world.advance(at)
        watch.step()
        while waiting and waiting[-1].at <= at:
            event = waiting.pop()
            (faults if event.do in FAULTS else actions).apply(world, event)
            if event.do in _AT_ONCE:
                world.round()
        world.settle()
        watch.step()


def _result(
    scenario: Scenario, events: Sequence[Event], world: World, watch: Watch, stopped_by: str
) -> Result:
    end = scenario.days * DAY_SECONDS
    parts = 0
    for project in PROJECT_NAMES:
        bill = partial(usages.usage, card=default_rate_card(), principal=PLATFORM, project=project)
        parts += world.database.read(bill).amount.parts
    return Result(
        seed=scenario.seed,
        days=scenario.days,
        events=world.rows("SELECT count(*) FROM state_changes WHERE machine != 'agent'")[0][0],
        faults=sum(event.do in FAULTS and event.at < end for event in events),
        violations=tuple(watch.found),
        state_hash=state_hash(world.database),
        decisions=tuple(world.database.read(decisions)),
        utilisation=_utilisation(world),
        waits=_waits(world),
        preemptions=world.rows(
            "SELECT count(*) FROM state_changes WHERE machine = 'node' AND event = 'preempt'"
        )[0][0],
        cost=Amount(parts),
        stopped_by=stopped_by,
    )


_STATES = (
    "SELECT resource_key, to_state, at FROM state_changes WHERE machine = :machine ORDER BY "
    "resource_key, seq"
)


def _utilisation(world: World) -> float:
    chips = {
        row[0]: kind_of(row[1], row[2]).chip_count
        for row in world.rows("SELECT node_key, accelerator_type, topology FROM nodes")
    }
    used = 0
    since: dict[str, int] = {}
    end = world.now().nanos
    for key, state, at in world.rows(_STATES, {"machine": "node"}):
        if key in since:
            used += (at - since.pop(key)) * chips[key]
        if state == "READY":
            since[key] = at
    used += sum((end - at) * chips[key] for key, at in sorted(since.items()))
    total = sum(pod.chip_count for pod in world.fleet.pods()) * (end - world.start.nanos)
    return used / total if total else 0.0


def _waits(world: World) -> tuple[float, float, float]:
    """p50, p95 and the longest, of plain nodes and queued resources that came to be."""
    begun: dict[str, int] = {}
    found: list[float] = []
    queued = "SELECT node_key FROM nodes WHERE queued_resource_key IS NOT NULL"
    of_queues = {row[0] for row in world.rows(queued)}
    for machine, goal in (("node", "READY"), ("queuedResource", "ACTIVE")):
        for key, state, at in world.rows(_STATES, {"machine": machine}):
            if state == "CREATING" and key not in of_queues:
                begun[key] = at
            elif state == goal and key in begun:
                found.append((at - begun.pop(key)) / 1e9)
    found.sort()
    if not found:
        return (0.0, 0.0, 0.0)
    return (_quantile(found, 0.5), _quantile(found, 0.95), found[-1])


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
