"""Whose slices may be taken for a request that finds no room, and which of them cost least."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.domain.fleet import Fleet, PlacementRequest
from podyard.domain.node import INTERRUPTIBLE
from podyard.domain.slice import SliceRecord
from podyard.scheduler.holds import Masks
from podyard.scheduler.placement import ChipBox, Takeable, cheapest_box
from podyard.scheduler.queue import NodeGroup, pods_for

# Chip-seconds that losing a slice costs its user, who starts again and compiles again. An hour
# of one chip is more than what slices usually differ by in lost work, so fewer victims win over a
# little less work.
VICTIM_CHIP_SECONDS = 3600


def cost(item: SliceRecord) -> int:
    """Chip-seconds that are lost when the slice is taken: the work since its last checkpoint, and a
    new start."""
    return round(item.lost_work_seconds * item.chips.bit_count()) + VICTIM_CHIP_SECONDS


def may_preempt(request: PlacementRequest) -> bool:
    """Return whether there is anything at all that the request may take from others."""
    return request.usage_class not in INTERRUPTIBLE or request.job_priority is not None


def case_of(group: NodeGroup) -> tuple[object, ...]:
    """Return what `cheapest` knows of a group, apart from the chips: equal groups get equal
    answers."""
    first = group[0]
    kinds = tuple(
        (item.accelerator_type.name, item.accelerator_type.topology.text, item.zone)
        for item in group
    )
    mine = None if first.job_priority is None else (first.project, first.job_priority)
    return (kinds, first.usage_class in INTERRUPTIBLE, mine)


def may_take(request: PlacementRequest, item: SliceRecord, now: PlatformTime) -> bool:
    """Reserved and on-demand requests may take preemptible and spot slices of anybody. A job may
    take the nodes that
    the platform made for jobs of lower priority in the same project. Nothing else: a priority is
    how a project ranks its own work, so it takes nothing from others, and no on-demand node is
    taken from anybody who asked for it.

    A slice that is leaving anyway is not taken again.
    """
    if item.reclaim is not None or (item.ends is not None and item.ends <= now):
        return False
    if item.usage_class in INTERRUPTIBLE and request.usage_class not in INTERRUPTIBLE:
        return True
    return (
        request.job_priority is not None
        and item.job_priority is not None
        and item.project == request.project
        and item.job_priority < request.job_priority
    )


def cheapest(
    fleet: Fleet,
    group: NodeGroup,
    free: Masks,
    allowed: Masks,
    slices: Sequence[SliceRecord],
    now: PlatformTime,
) -> tuple[list[ChipBox], list[SliceRecord]] | None:
    """Boxes for the whole group and the slices that must go for them, the cheapest for each request
    in turn; None when there are none. A victim of one request is free for the next ones of the
    group. `allowed`: chips that are neither broken nor held for others."""
    left, victims, gone, boxes = dict(free), list[SliceRecord](), set[str](), list[ChipBox]()
    for request in group:
        pods = pods_for(fleet, request)
        able = [
            [
                s
                for s in slices
                if s.pod_id == pod.pod_id and s.slice_id not in gone and may_take(request, s, now)
            ]
            for pod in pods
        ]
        takeable = [
            [Takeable(item.chips & allowed[item.pod_id], cost(item)) for item in row]
            for row in able
        ]
        masks = [left[pod.pod_id] for pod in pods]
        found = cheapest_box(pods, masks, takeable, request.accelerator_type)
        if found is None:
            return None
        box, chosen = found
        for pod_index, index in chosen:
            item = able[pod_index][index]
            victims.append(item)
            gone.add(item.slice_id)
            left[item.pod_id] |= item.chips & allowed[item.pod_id]
        left[box.pod_id] &= ~box.chips
        boxes.append(box)
    return boxes, victims


def victims_text(victims: Sequence[SliceRecord]) -> str:
    """`2 slices taken back for it`: not whose, since they may be of a project that the reader must
    not know of."""
    return f"{len(victims)} slice{'' if len(victims) == 1 else 's'} taken back for it"
