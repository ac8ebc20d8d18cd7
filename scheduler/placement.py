"""Exact search for a free box of chips in the torus of a pod.

A set of chips is one integer (podyard.hardware.torus). The origins at which a box fits are found for all origins at
once: shift the free chips along a dimension by 1, 2, 4, ... positions and AND, so a box of length n needs about
log2(n) shifts per dimension; what remains are the origins, and the lowest set bit is the first fit. Nothing is
approximated: if an allowed box is free, it is found.

Where a box may stand:
  - it is a rotation of the type's topology that keeps hosts whole (a host is 2x2 chips of the first two dimensions);
  - its origin lies on a host boundary; in three dimensions it also lies on a boundary of 4x4x4 cubes, or, for shapes
    below a cube, on a multiple of its own lengths, so that it stays inside one cube;
  - it may reach over the end of a dimension: the pod is a torus, and a slice that wraps is a box like any other.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from podyard.domain.fleet import Pod
from podyard.hardware.accelerator_types import AcceleratorType, all_types
from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape
from podyard.hardware.torus import box_mask, coordinate_of, full_mask, rotations

_HOST_EDGE_CHIPS = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """Chips of one pod: `shape` is the rotation that was used, in the pod's dimensions."""

    pod_id: str
    origin: Shape
    shape: Shape
    chips: int


def find_box(pods: Sequence[Pod], free: Sequence[int], kind: AcceleratorType) -> Box | None:
    """First fit: pods in their order, rotations in their order, lowest origin. `free` has one bit set per pod."""
    for pod, chips in zip(pods, free, strict=True):
        if chips.bit_count() < kind.chip_count:
            continue
        for shape in orientations(kind.topology.shape, pod.shape):
            origins = free_origins(pod.shape, chips, shape) & allowed_origins(pod.shape, shape)
            if origins:
                lowest = (origins & -origins).bit_length() - 1
                origin = coordinate_of(pod.shape, lowest)
                return Box(pod.pod_id, origin, shape, box_mask(pod.shape, origin, shape))
    return None


def largest_free_box(pods: Sequence[Pod], free: Sequence[int]) -> AcceleratorType | None:
    """The largest named type that would fit now, for the reason why another did not; None when nothing fits."""
    if not pods:
        return None
    for kind in reversed(all_types(pods[0].generation)):
        if find_box(pods, free, kind) is not None:
            return kind
    return None


def free_origins(pod: Shape, free: int, shape: Shape) -> int:
    """All origins, as a bit set, at which a box of `shape` has only free chips."""
    stride = 1
    for dimension, (extent, length) in enumerate(zip(pod, shape, strict=True)):
        # Invariant: a bit is set where `done` positions in a row, from there upwards, are free.
        done = 1
        while done < length and free:
            step = min(done, length - done)
            inner = _low_part(pod, dimension, extent - step)
            down = (free >> (step * stride)) & inner
            around = (free << ((extent - step) * stride)) & (full_mask(pod) ^ inner)
            free &= down | around
            done += step
        stride *= extent
    return free


@functools.lru_cache(maxsize=4096)
def _low_part(pod: Shape, dimension: int, length: int) -> int:
    """All chips whose position along `dimension` is below `length`."""
    return box_mask(pod, (0,) * len(pod), (*pod[:dimension], length, *pod[dimension + 1 :]))


@functools.lru_cache(maxsize=4096)
def orientations(shape: Shape, pod: Shape) -> tuple[Shape, ...]:
    """Rotations of `shape` that fit the pod and keep hosts whole: the plane of a host is that of the first two
    dimensions, so both are even; a single chip is a host of its own."""
    return tuple(
        turned
        for turned in rotations(shape)
        if all(a <= b for a, b in zip(turned, pod, strict=True))
        and (math.prod(shape) == 1 or (turned[0] % 2 == 0 and turned[1] % 2 == 0))
    )


@functools.lru_cache(maxsize=4096)
def allowed_origins(pod: Shape, shape: Shape) -> int:
    """The origins that lie on the boundaries that a box of this shape keeps."""
    mask = 1
    stride = 1
    for extent, length in zip(pod, shape, strict=True):
        grid = min(length, CUBE_EDGE_CHIPS if len(pod) == 3 else _HOST_EDGE_CHIPS)
        copies = 0
        for position in range(0, extent, grid):
            copies |= mask << (position * stride)
        mask = copies
        stride *= extent
    return mask
