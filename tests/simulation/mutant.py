"""What a wrong variant of the control plane is, and how one is put together (`mutants.py` and
`mutants_by_hand.py` have the list, `mutant_table.py` runs it)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from podyard.db.store import timers
from podyard.simulation.run import Result, simulate
from podyard.simulation.scenario import Event, Scenario
from podyard.simulation.world import AGENT_COUNT

NODES, DAYS = 6, 2.0
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`seeds`: those that noticed it when the list was made. `test`: the one that notices it, where
    no simulation
    could."""

    name: str
    invariant: str
    patch: Patch
    seeds: tuple[int, ...]
    events: tuple[Event, ...] | None = None  # instead of those that the seed draws
    test: str = ""

    def scenario(self, seed: int) -> Scenario:
        return Scenario(
            seed=seed, days=DAYS if self.events is None else 0.3, nodes=NODES, events=self.events
        )

    def found(self, seed: int) -> set[str]:
        """The invariants that a run of the seed finds broken. The caller has put the mutant in
        place."""
        result: Result = simulate(self.scenario(seed))
        found = {violation.invariant for violation in result.violations}
        if (
            self.invariant == "I17"
            and simulate(self.scenario(seed)).state_hash != result.state_hash
        ):
            found.add("I17")
        return found | ({result.stopped_by} if result.stopped_by else set())


MUTANTS: list[Mutant] = []  # filled by `mutants.py` and `mutants_by_hand.py`


def mutant(
    invariant: str, *seeds: int, events: tuple[Event, ...] | None = None, test: str = ""
) -> Callable[[Patch], Patch]:
    def add(patch: Patch) -> Patch:
        MUTANTS.append(Mutant(patch.__name__, invariant, patch, seeds, events, test))
        return patch

    return add


WHERE = {"project": "atlas", "zone": "us-central1-a", "usage": "on-demand"}
# Two requests for the whole of the only pod.
TWO_FOR_ONE_POD = tuple(
    Event(float(at), "queue", f"q-{at}", {**WHERE, "type": "v5litepod-16"}) for at in (10, 20)
)
# READY for less than a minute, and then deleted by its user.
SHORT_LIFE = (
    Event(10.0, "create", "n", {**WHERE, "type": "v5litepod-1", "usage": "spot"}),
    Event(130.0, "delete", "n"),
)
# READY at 105 s, and taken back after exactly the minute within which it would have been free.
A_MINUTE = (
    Event(10.0, "create", "n", {**WHERE, "type": "v5litepod-1", "usage": "spot"}),
    Event(165.0, "preempt", "n"),
)
# One more than a quota of 48 has room for; they wait for chips.
FORTY_NINE = tuple(
    Event(10.0 + at, "queue", f"q-{at}", {**WHERE, "type": "v5litepod-1"}) for at in range(49)
)
# The chips of one slice of a multislice break and come back: the other slices restart.
BROKEN_CHIPS = (
    Event(10.0, "queue", "q", {**WHERE, "type": "v5litepod-1", "count": 2}),
    Event(
        600.0,
        "rule",
        "",
        {"rule": {"effect": "chip", "seconds": 100, "match": {"resource": "q-1"}}},
    ),
)
MULTISLICE = (Event(10.0, "queue", "q", {**WHERE, "type": "v5litepod-1", "count": 3}),)
# A node whose run time ends in the middle of a job.
ENDS_UNDER_A_JOB = (
    Event(10.0, "queue", "q", {**WHERE, "type": "v5litepod-1", "run_seconds": 3600.0}),
    Event(
        300.0,
        "job",
        "j",
        {
            **WHERE,
            "type": "v5litepod-1",
            "node": "q-n",
            "steps": 12,
            "every": 4,
            "step_seconds": 600,
        },
    ),
)
# Each machine in turn cannot be reached until its replicas were given up, and then comes back with
# them.
LOST_AND_FOUND = (
    Event(10.0, "create", "n", {**WHERE, "type": "v5litepod-1"}),
    Event(
        300.0,
        "job",
        "j",
        {**WHERE, "type": "v5litepod-1", "node": "n", "steps": 40, "every": 4, "step_seconds": 600},
    ),
    *(
        Event(
            2000.0 + 7000.0 * agent,
            "silence",
            "",
            {"agent": agent, "seconds": 3000.0, "lapse": True},
        )
        for agent in range(AGENT_COUNT)
    ),
)


class Altered:
    """A module or class as another one sees it, with some of its names replaced."""

    def __init__(self, real: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def ignoring(function: Callable[..., Any], wrong: Callable[..., bool]) -> Callable[..., Any]:
    """`function`, but nothing happens where `wrong` is true of its arguments."""

    def changed(*args: Any, **options: Any) -> Any:
        return None if wrong(*args, **options) else function(*args, **options)

    return changed


def no_timer(patch: pytest.MonkeyPatch, kind: str) -> None:
    patch.setattr(timers, "put", ignoring(timers.put, lambda uow, given, *rest: given == kind))
