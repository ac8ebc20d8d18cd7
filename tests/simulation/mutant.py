"""What a wrong variant of the control plane is, and how one is put together (`mutants.py` has the list)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from podyard.db import timers
from podyard.simulation.scenario import Event
from podyard.simulation.world import AGENT_COUNT

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`seeds`: those that noticed it when the list was made."""

    name: str
    invariant: str
    patch: Patch
    seeds: tuple[int, ...]
    events: tuple[Event, ...] | None = None  # instead of those that the seed draws


MUTANTS: list[Mutant] = []  # filled by `mutants.py`


def mutant(invariant: str, *seeds: int, events: tuple[Event, ...] | None = None) -> Callable[[Patch], Patch]:
    def add(patch: Patch) -> Patch:
        MUTANTS.append(Mutant(patch.__name__, invariant, patch, seeds, events))
        return patch

    return add


WHERE = {"project": "atlas", "zone": "us-central1-a", "usage": "on-demand"}
# Two requests for the whole of the only pod.
TWO_FOR_ONE_POD = tuple(Event(float(at), "queue", f"q-{at}", {**WHERE, "type": "v5litepod-16"}) for at in (10, 20))
# READY for less than a minute, and then deleted by its user.
SHORT_LIFE = (
    Event(10.0, "create", "n", {**WHERE, "type": "v5litepod-1", "usage": "spot"}),
    Event(130.0, "delete", "n"),
)
MULTISLICE = (Event(10.0, "queue", "q", {**WHERE, "type": "v5litepod-1", "count": 3}),)
# A node whose run time ends in the middle of a job.
ENDS_UNDER_A_JOB = (
    Event(10.0, "queue", "q", {**WHERE, "type": "v5litepod-1", "run_seconds": 3600.0}),
    Event(
        300.0, "job", "j", {**WHERE, "type": "v5litepod-1", "node": "q-n", "steps": 12, "every": 4, "step_seconds": 600}
    ),
)
# Each machine in turn cannot be reached until its replicas were given up, and then comes back with them.
LOST_AND_FOUND = (
    Event(10.0, "create", "n", {**WHERE, "type": "v5litepod-1"}),
    Event(
        300.0, "job", "j", {**WHERE, "type": "v5litepod-1", "node": "n", "steps": 40, "every": 4, "step_seconds": 600}
    ),
    *(
        Event(2000.0 + 7000.0 * agent, "silence", "", {"agent": agent, "seconds": 3000.0, "lapse": True})
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
