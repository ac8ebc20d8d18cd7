"""Alerts about chips and memory: what waits because a zone has no room, and what fits nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from podyard.base.clock import PlatformTime
from podyard.base.durations import duration_for_people
from podyard.control.compute.queue_view import Obstacle, Waiting
from podyard.db.compute.hosts import NodeModule
from podyard.web.kit.places import resource_url
from podyard.web.kit.render import project_url

Alert = tuple[str, str, str]  # what, more about it, where to look
ALERTS_MAX = 5  # of one kind: the queue and the nodes list all of them


def stockouts(waiting: Sequence[Waiting], now: PlatformTime, project: str) -> list[Alert]:
    """One for each zone and type that something waits for; it leads to the zones that have room."""
    groups: dict[tuple[str, str], list[Waiting]] = {}
    for item in waiting:
        if item.obstacle is Obstacle.NO_ROOM:
            groups.setdefault((_zone(item), item.accelerator_type), []).append(item)
    found = []
    for (zone, kind), items in list(groups.items())[:ALERTS_MAX]:
        kind_wanted = kind.partition(",")[0]
        url = f"{project_url(project, 'create')}?{urlencode({'type': kind_wanted})}"
        text = (
            f"{len(items)} {'waits' if len(items) == 1 else 'wait'}. "
            f"{_start(items, now)}{items[0].reason}"
        )
        found.append((f"No room for {kind} in {zone}", text, url))
    return found


def misfits(waiting: Sequence[Waiting], modules: Sequence[NodeModule], project: str) -> list[Alert]:
    """Requests that no pod could ever hold, and programs that need more memory than their slice
    has."""
    shapes = [item for item in waiting if item.obstacle is Obstacle.DOES_NOT_FIT]
    found = [
        (
            f"{item.name.rpartition('/')[2]} does not fit in {_zone(item)}",
            f"{item.accelerator_type}: even empty pods could not hold it. {item.reason}",
            project_url(project, "queue"),
        )
        for item in shapes[:ALERTS_MAX]
    ]
    found += [
        (
            f"{one.module.name} does not fit on {one.node.rpartition('/')[2]}",
            one.module.verdict,
            resource_url(one.node),
        )
        for one in modules[:ALERTS_MAX]
    ]
    return found


def _zone(item: Waiting) -> str:
    return item.name.split("/")[3]


def _start(items: Sequence[Waiting], now: PlatformTime) -> str:
    starts = [item.predicted_start.seconds_since(now) for item in items if item.predicted_start]
    which = "It" if len(items) == 1 else "The first"
    return (
        f"{which} starts in {duration_for_people(max(0, round(min(starts))))}. " if starts else ""
    )
