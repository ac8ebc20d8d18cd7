"""The supply of one cycle: free chips of each pod, and chips of each reservation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from podyard.base.clock import PlatformTime
from podyard.domain.fleet import FleetSnapshot, PlacementRequest
from podyard.domain.node import UsageClass
from podyard.domain.plan import Place
from podyard.domain.reservation import is_named
from podyard.domain.slice import SliceRecord
from podyard.hardware.torus import full_mask
from podyard.scheduler.holds import Hold
from podyard.scheduler.placement import ChipBox
from podyard.scheduler.queue import NodeGroup


class Room:
    """`placed` are the slices that were there before the cycle, in the order of their ids: rows
    come in any order, and no decision may hang on it. `slices` are these and the ones that the
    cycle has placed. Reservations alone keep the order of the snapshot, the oldest first."""

    def __init__(self, snapshot: FleetSnapshot, now: PlatformTime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._whole = {
            pod.pod_id: full_mask(pod.shape) & ~snapshot.broken_chips.get(pod.pod_id, 0)
            for pod in snapshot.fleet.pods()
        }
        self._free = dict(self._whole)
        # A slice in a pod that the fleet file no longer has keeps its chips, but they are nobody's
        # to give.
        known = [item for item in snapshot.slices if item.pod_id in self._whole]
        self.placed = sorted(known, key=lambda item: item.slice_id)
        self.slices_under_notice = [item for item in self.placed if item.reclaim is not None]
        self.new: list[SliceRecord] = []
        for item in self.placed:
            self._free[item.pod_id] &= ~item.chips
        self._reserved = {item.reservation_key: item.chips for item in snapshot.reservations}

    @property
    def slices(self) -> list[SliceRecord]:
        return [*self.placed, *self.new]

    def usable_chips(
        self, holds: Iterable[Hold] = (), until: PlatformTime | None = None
    ) -> dict[str, int]:
        """The chips that are not broken and that no hold bars what ends at `until` from."""
        allowed = dict(self._whole)
        for hold in holds:
            if hold.bars(until):
                for pod_id, chips in hold.chips.items():
                    allowed[pod_id] &= ~chips
        return allowed

    def free_of(self, allowed: dict[str, int]) -> dict[str, int]:
        return {pod_id: chips & self._free[pod_id] for pod_id, chips in allowed.items()}

    def under_notice(self, pod_id: str) -> int:
        """The chips of slices in a pod that are soon taken back."""
        chips = 0
        for item in self.slices_under_notice:
            if item.pod_id == pod_id:
                chips |= item.chips
        return chips & self._whole[pod_id]

    def give_notice(self, victims: Sequence[SliceRecord], at: PlatformTime) -> None:
        going = {item.slice_id for item in victims}
        self.placed = [
            dataclasses.replace(item, reclaim=at) if item.slice_id in going else item
            for item in self.placed
        ]
        self.slices_under_notice = [item for item in self.placed if item.reclaim is not None]

    def take(
        self,
        group: NodeGroup,
        boxes: Sequence[ChipBox],
        rights: Sequence[str | None],
        until: PlatformTime | None,
    ) -> None:
        """Takes the chips of the boxes, and their room in reservations. `until`: when they come
        back for certain."""
        for request, box, right in zip(group, boxes, rights, strict=True):
            self._free[box.pod_id] &= ~box.chips
            if right is not None:
                self._reserved[right] -= request.accelerator_type.chip_count
            self.new.append(slice_of(request, box, self._now, until))

    def reservations_for(self, group: NodeGroup) -> list[str | None] | PlacementRequest:
        """For each request the reservation that it is placed under (None: it needs none), or the
        request without."""
        left, found = dict(self._reserved), list[str | None]()
        for request in group:
            right = None
            if request.usage_class is UsageClass.RESERVED:
                right = self._reservation(request, left)
                if right is None:
                    return request
                left[right] -= request.accelerator_type.chip_count
            found.append(right)
        return found

    def _reservation(self, request: PlacementRequest, left: dict[str, int]) -> str | None:
        """The first reservation that the request may use, and that has room for it and lasts long
        enough."""
        needed = request.accelerator_type
        until = self._now.plus_seconds(request.min_duration_seconds or 0.0)
        for item in self._snapshot.reservations:
            if (
                (item.project, item.zone) == (request.project, request.zone)
                and item.generation == needed.generation.name
                and is_named(request.reservation_name, item.name)
                and left[item.reservation_key] >= needed.chip_count
                and (item.ends is None or item.ends >= until)
            ):
                return item.reservation_key
        return None


def slice_of(
    request: PlacementRequest, box: ChipBox | Place, now: PlatformTime, ends: PlatformTime | None
) -> SliceRecord:
    """The slice that placing the request in the box makes."""
    return SliceRecord(
        slice_id=f"new/{request.node_key}",
        node_key=request.node_key,
        pod_id=box.pod_id,
        chips=box.chips,
        project=request.project,
        usage_class=request.usage_class,
        placed=now,
        ends=ends,
        job_priority=request.job_priority,
    )
