"""A slice: the chips of one pod that are allotted to one node."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from podyard.base.clock import PlatformTime
from podyard.domain.node import UsageClass
from podyard.hardware.accelerator_types import AcceleratorType

# docs/preemptible: a preemptible node lives for 24 hours at most; spot has no limit.
PREEMPTIBLE_LIFE_SECONDS = 24 * 3600
_EPOCH = PlatformTime(0)


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedSlice:
    """A slice as the platform keeps it, while its node holds chips. `chips` is a bit set of the
    pod's chips."""

    slice_id: str
    node_key: str
    zone: str
    pod_id: str
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    chips: int
    created: PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class SliceOfNode:
    """A slice, of today or given back since, with what is told of its node. `chips` is a bit set of
    the pod's chips."""

    slice_id: str
    pod_id: str
    project: str
    node: str  # the full name of its node
    created_by: str
    kind: AcceleratorType
    usage_class: UsageClass
    chips: int
    placed: PlatformTime
    reclaim: PlatformTime | None


class HeldChips(NamedTuple):
    """The chips that a slice holds, and for whom: all that a count of chips needs. `chips` is a bit
    set of the pod's chips."""

    pod_id: str
    project: str
    chips: int


@dataclasses.dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice, as a scheduling cycle knows it. `chips` is a bit set of the pod's chips
    (podyard.hardware.torus).

    `ends`: the latest moment at which its node ends by itself; None: nobody knows. One that has
    passed, or lies at `placed`, says that the node is leaving: its chips come back once the last
    process on them is gone. `reclaim`: notice has been given, and the slice is taken back then.
    `job_priority`: of the job that the platform made the node for; None for any other node.
    `lost_work_seconds`: modelled seconds since the last committed checkpoint of the job on it. It
    changes with every step and is only a price, so two snapshots that differ in it alone are equal.
    """

    slice_id: str
    node_key: str
    pod_id: str
    chips: int
    project: str = ""
    usage_class: UsageClass = UsageClass.ON_DEMAND
    node_version: int = 1
    placed: PlatformTime = _EPOCH
    ends: PlatformTime | None = None
    reclaim: PlatformTime | None = None
    job_priority: int | None = None
    lost_work_seconds: float = dataclasses.field(default=0.0, compare=False)

    @property
    def free_from(self) -> PlatformTime | None:
        """When its chips come back at the latest; None: nobody knows."""
        if self.ends is None or self.reclaim is None:
            return self.reclaim or self.ends
        return min(self.ends, self.reclaim)


def chips_text(chips: int) -> str:
    """Return how a bit set is stored: hexadecimal."""
    return f"{chips:x}"


def chips_from_text(text: str) -> int:
    return int(text, 16)
