"""A slice: the chips of one pod that are allotted to one node."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class SliceRecord:
    """`chips` is a bit set of the pod's chips (podyard.hardware.torus)."""

    slice_id: str
    node_key: str
    pod_id: str
    chips: int


def chips_text(chips: int) -> str:
    """How a bit set is stored: hexadecimal."""
    return f"{chips:x}"


def chips_from_text(text: str) -> int:
    return int(text, 16)


def assert_no_overlap(slices: Sequence[SliceRecord]) -> None:
    """No chip belongs to two slices. A breach is a bug, so it raises AssertionError."""
    taken: dict[str, int] = {}
    for item in slices:
        held = taken.get(item.pod_id, 0)
        assert not held & item.chips, f"slice {item.slice_id} overlaps another slice of pod {item.pod_id}"
        taken[item.pod_id] = held | item.chips
