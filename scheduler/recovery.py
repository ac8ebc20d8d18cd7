"""The next state of a node whose slice has lost chips, and the chips that belong together."""

from __future__ import annotations

from enum import StrEnum

from podyard.base.clock import PlatformTime
from podyard.domain.node import INTERRUPTIBLE, UsageClass
from podyard.hardware.accelerator_types import AcceleratorType, host_shape
from podyard.hardware.topology import Shape
from podyard.hardware.torus import (
    Coordinate,
    box_mask,
    chips_of,
    coordinate_of,
    hosts_of,
    index_of,
    mask_of,
    rotations,
)


class Recovery(StrEnum):
    """KEEP: it waits for its chips, on the same slice. MOVE: it leaves the slice and waits for
    another one, in the
    order of the queue. LOSE: it is taken back."""

    KEEP = "keep"
    MOVE = "move"
    LOSE = "lose"


def decide(
    usage_class: UsageClass, back: PlatformTime | None, now: PlatformTime, repair_seconds: float
) -> Recovery:
    """`back`: when the chips work again; None: never. `repair_seconds`: how long is waited for that
    at most; 0: for as long as it takes. Nodes that may be taken back are not repaired (docs:
    preemptible and spot nodes)."""
    if usage_class in INTERRUPTIBLE:
        return Recovery.LOSE
    if back is None:
        return Recovery.MOVE
    return (
        Recovery.KEEP
        if repair_seconds == 0 or back <= now.plus_seconds(repair_seconds)
        else Recovery.MOVE
    )


def hosts_of_slice(
    pod: Shape, origin: Coordinate, shape: Shape, chips: int, kind: AcceleratorType
) -> tuple[int, ...]:
    """The chips of each host of a slice. Where optical switches join cubes from all over the pod, a
    host is the next chips of the slice in the order of the pod."""
    per_host = host_shape(kind)[: len(shape)]
    turned = [
        host
        for host in rotations(per_host)
        if all(a % b == 0 for a, b in zip(shape, host, strict=True))
    ]
    if (
        turned
        and all(a <= b for a, b in zip(shape, pod, strict=True))
        and box_mask(pod, origin, shape) == chips
    ):
        return hosts_of(pod, turned[0], origin, shape)
    found, count = list(chips_of(chips)), kind.chips_per_host
    return tuple(mask_of(found[first : first + count]) for first in range(0, len(found), count))


def links_of_slice(pod: Shape, chips: int) -> list[int]:
    """The links inside a slice, each as the chips at its two ends, in the order of the chips. Those
    that lead around
    the end of the pod are among them."""
    found = []
    for chip in chips_of(chips):
        at = coordinate_of(pod, chip)
        for dimension, extent in enumerate(pod):
            moved = (*at[:dimension], (at[dimension] + 1) % extent, *at[dimension + 1 :])
            other = index_of(pod, moved)
            if other != chip and chips >> other & 1:
                found.append(1 << chip | 1 << other)
    return list(dict.fromkeys(found))
