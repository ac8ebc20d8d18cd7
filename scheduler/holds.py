"""Holds: capacity that is kept for the head of the queue, and who may be placed before it
(backfill).

EASY backfill (Lifka 1995; Mu'alem and Feitelson 2001) with geometry: what is kept is not a number
of chips but the chips of one box, found by the same search that will place the head. Only the first
group of each pool that cannot be placed has a hold. Those behind it are neither blocked nor
guaranteed anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.domain.fleet import Fleet, NodeTimings, PlacementRequest
from podyard.domain.slice import SliceRecord
from podyard.scheduler.placement import ChipBox, Takeable, cheapest_box, find_box
from podyard.scheduler.queue import NodeGroup, pods_for

# A head in the way of which are slices without a known end waits for so long with others going past
# it. Then chips are kept for it as they come free, so that it does not starve. Long enough for a
# short queue to drain, short compared with the hours that a training run takes.
HOLD_AFTER_SECONDS = 600.0

Masks = Mapping[str, int]  # pod id -> bit set of its chips


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """Chips kept for the group `key` from the moment `starts` on; None: from now on, since its
    start is not known."""

    key: str
    starts: PlatformTime | None
    chips: Masks

    def bars(self, until: PlatformTime | None) -> bool:
        """Return whether a group that ends at `until` for certain (None: it may stay) must keep off
        the chips."""
        return until is None or self.starts is None or until > self.starts

    @property
    def text(self) -> str:
        """Not for whom: it may be of a project that the reader must not know of."""
        since = "" if self.starts is None else f" from {self.starts.rfc3339()}"
        return f"held for a request that comes before it{since}"


@dataclasses.dataclass(frozen=True, slots=True)
class Unfit:
    """The first request of a group without a box, and the free chips that those before it have
    left."""

    request: PlacementRequest
    free: Masks


def certain_end(group: NodeGroup, now: PlatformTime, timings: NodeTimings) -> PlatformTime | None:
    """When all nodes of the group have ended by themselves if they are placed now; None: nobody
    knows."""
    longest = 0.0
    for request in group:
        if request.duration_seconds is None:
            return None
        creation = timings.creation_seconds(request.accelerator_type.host_count)
        longest = max(longest, creation + request.duration_seconds)
    return now.plus_seconds(longest)


def fit(fleet: Fleet, group: NodeGroup, free: Masks) -> list[ChipBox] | Unfit:
    """A box in the free chips for each request of the group, one after the other, or why not."""
    left = dict(free)
    boxes: list[ChipBox] = []
    for request in group:
        pods = pods_for(fleet, request)
        home = [pod for pod in pods if pod.pod_id == request.last_pod]
        box = (
            find_box(home, [left[pod.pod_id] for pod in home], request.accelerator_type)
            if home
            else None
        )
        if box is None:
            box = find_box(pods, [left[pod.pod_id] for pod in pods], request.accelerator_type)
        if box is None:
            return Unfit(request, left)
        left[box.pod_id] &= ~box.chips
        boxes.append(box)
    return boxes


def union(boxes: Sequence[ChipBox]) -> dict[str, int]:
    """The chips of all boxes."""
    chips: dict[str, int] = {}
    for box in boxes:
        chips[box.pod_id] = chips.get(box.pod_id, 0) | box.chips
    return chips


def earliest(
    fleet: Fleet,
    key: str,
    group: NodeGroup,
    free: Masks,
    allowed: Masks,
    slices: Sequence[SliceRecord],
) -> Hold | None:
    """The hold of a group that does not fit into `free`: the earliest of the moments at which a
    slice ends by itself from which on the group fits. None: it does not fit either when all slices
    with a known end are gone.

    `allowed` are the chips that it may have at all: not broken, and held for nobody before it.
    Chips only become more with time, so the moments are searched by halves.
    """
    pods = {pod.pod_id for request in group for pod in pods_for(fleet, request)}
    ending = [
        (at.nanos, item.pod_id, item.chips)
        for item in slices
        if item.pod_id in pods and (at := item.free_from)
    ]
    then = {pod_id: free[pod_id] for pod_id in pods}
    by_moment: dict[int, Masks] = {}  # what is free from then on, ascending
    for nanos, pod_id, chips in sorted(ending):
        then[pod_id] |= chips & allowed[pod_id]
        by_moment[nanos] = dict(then)
    moments = list(by_moment)
    low, high = 0, len(moments) - 1
    found = fit(fleet, group, then) if moments else None
    if found is None or isinstance(found, Unfit):
        return None
    while low < high:  # it fits at `high`, and `found` is where
        middle = (low + high) // 2
        boxes = fit(fleet, group, by_moment[moments[middle]])
        if isinstance(boxes, Unfit):
            low = middle + 1
        else:
            high, found = middle, boxes
    return Hold(key, PlatformTime(moments[high]), union(found))


def least_taken(
    fleet: Fleet,
    key: str,
    group: NodeGroup,
    free: Masks,
    allowed: Masks,
    slices: Sequence[SliceRecord],
) -> Hold | None:
    """The hold of a group whose start nobody can tell: the boxes whose slices have the fewest
    chips. What is free of them is kept; what the slices give back is kept as it comes. None: no pod
    could hold the group."""
    left = dict(free)
    taken = [
        (item.pod_id, item.chips & allowed[item.pod_id])
        for item in slices
        if item.pod_id in allowed
    ]
    boxes = []
    for request in group:
        pods = pods_for(fleet, request)
        takeable = [
            [
                Takeable(chips, chips.bit_count())
                for pod_id, chips in taken
                if pod_id == pod.pod_id and chips
            ]
            for pod in pods
        ]
        found = cheapest_box(
            pods, [left[pod.pod_id] for pod in pods], takeable, request.accelerator_type
        )
        if found is None:
            return None
        box = found[0]
        boxes.append(box)
        left[box.pod_id] &= ~box.chips
        taken = [
            (pod_id, chips & ~box.chips if pod_id == box.pod_id else chips)
            for pod_id, chips in taken
        ]
    return Hold(key, None, union(boxes))
