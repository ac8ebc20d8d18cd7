"""Fewer events that still break the same invariant: delta debugging (Zeller, Hildebrandt 2002) on
the list."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from podyard.simulation.run import Result, draw_events, simulate
from podyard.simulation.scenario import Event, Scenario

# each costs up to what the failing run did; a list of hundreds comes to a handful well before
RUNS_MAX = 150


def shrink(
    scenario: Scenario,
    failed: Result,
    run: Callable[[Scenario], Result] = simulate,
    runs_max: int = RUNS_MAX,
) -> Scenario:
    """`scenario` with a part of its events that breaks what `failed` broke first; after `runs_max`
    runs, the shortest that was found. Ends with the day of the failure: what would come after it is
    left out at once."""
    wanted = _what(failed)
    left = runs_max

    def fails(events: Sequence[Event]) -> bool:
        nonlocal left
        left -= 1
        return _what(run(dataclasses.replace(scenario, events=tuple(events), rules=()))) == wanted

    events = list(draw_events(scenario))
    parts = 2
    while len(events) >= 2 and left > 0:
        size = -(-len(events) // parts)
        chunks = [events[start : start + size] for start in range(0, len(events), size)]
        for index in range(len(chunks)):
            rest = [
                event for other, chunk in enumerate(chunks) if other != index for event in chunk
            ]
            if left > 0 and fails(rest):
                events, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(events), parts * 2)
    return dataclasses.replace(scenario, events=tuple(events), rules=(), trace=None)


def _what(result: Result) -> str:
    """Return what a run failed by: the invariant, or the kind of error in the code."""
    if result.stopped_by:
        return result.stopped_by.split(":", 1)[0]
    return result.violations[0].invariant if result.violations else ""
