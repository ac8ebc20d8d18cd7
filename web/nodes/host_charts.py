"""Curves of the use of a node's hosts by jobs in the past hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from podyard.control.jobs.host_use import STEP_SECONDS, STEPS_MAX, UseStep
from podyard.web.kit.charts import SERIES_MAX, ChartLine, ChartPoint, line_chart

_GIB, _PERCENT = float(1 << 30), 100.0
_X_NAME = "minutes (0 is now)"
Steps = Mapping[int, Sequence[UseStep]]  # by host, the oldest first


Values = Mapping[int, float]  # by the begin of a step


class UseChart(NamedTuple):
    key: str
    title: str
    svg: Markup
    names: Sequence[str]


def charts_of(steps: Steps, now_seconds: float) -> list[UseChart]:
    """`now_seconds`: of the machine's clock. What is older than the history is left out."""
    now = int(now_seconds) // STEP_SECONDS * STEP_SECONDS
    oldest = now - STEP_SECONDS * STEPS_MAX
    known = {
        index: [step for step in found if step.begin >= oldest and step.seconds > 0]
        for index, found in steps.items()
    }
    known = {index: found for index, found in known.items() if found}
    if not known:
        return []
    busy = _best_of(known, lambda step: _PERCENT * step.busy_share)
    return [
        _chart("cpu", "CPU", "cores in use", _lines_of(known, lambda step: step.cores), now),
        _chart(
            "memory",
            "Memory",
            "GiB in use",
            _lines_of(known, lambda step: step.memory_bytes / _GIB),
            now,
        ),
        _chart("busy", "Chips", "% of the time busy", [("chips of the slice", busy)], now),
    ]


def newest_of(steps: Steps, now_seconds: float) -> dict[int, UseStep]:
    """The last whole step of each host that is in use now."""
    found = {}
    for index, known in steps.items():
        lasting = [
            step
            for step in known
            if step.seconds > 0 and step.begin >= now_seconds - 2 * STEP_SECONDS
        ]
        if lasting:
            found[index] = lasting[0]
    return found


def _lines_of(steps: Steps, value: Callable[[UseStep], float]) -> list[tuple[str, Values]]:
    """A line for each host, or of many hosts the highest, the mean and the lowest."""
    lines = {
        f"host {index}": {step.begin: value(step) for step in found}
        for index, found in steps.items()
    }
    if len(lines) <= SERIES_MAX:
        return list(lines.items())
    begins = sorted({begin for line in lines.values() for begin in line})
    at = {begin: [line[begin] for line in lines.values() if begin in line] for begin in begins}
    count = len(lines)
    return [
        (f"highest of {count} hosts", {begin: max(values) for begin, values in at.items()}),
        ("mean", {begin: sum(values) / len(values) for begin, values in at.items()}),
        ("lowest", {begin: min(values) for begin, values in at.items()}),
    ]


def _best_of(steps: Steps, value: Callable[[UseStep], float]) -> Values:
    """One process of a gang reports its steps, and the others are 0."""
    found: dict[int, float] = {}
    for step in (step for known in steps.values() for step in known):
        found[step.begin] = max(found.get(step.begin, 0.0), value(step))
    return dict(sorted(found.items()))


def _chart(
    key: str,
    title: str,
    unit: str,
    lines: Sequence[tuple[str, Values]],
    now: int,
) -> UseChart:
    drawn = [
        ChartLine(name, [ChartPoint((begin - now) / 60, value) for begin, value in values.items()])
        for name, values in lines
    ]
    svg = line_chart(f"{title}: {unit}", drawn, x_name=_X_NAME, y_name=unit)
    return UseChart(key, f"{title}, {unit}", svg, [name for name, _ in lines])
