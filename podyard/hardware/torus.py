"""Geometry of a torus of chips: coordinates, neighbours, rings, distances, and boxes as bitmasks in
one integer.

Chip (x, y, z) has index x + X * (y + Y * z): x runs fastest. A set of chips is a Python integer
whose bit `index` is set; unions, overlaps and counts of thousands of chips are then single
operations.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape

Coordinate = tuple[int, ...]

HOST_EDGE_CHIPS = 2  # a host is 2x2 chips of a pod's first two dimensions


def index_of(shape: Shape, coordinate: Coordinate) -> int:
    index = 0
    for extent, position in zip(reversed(shape), reversed(coordinate), strict=True):
        index = index * extent + position
    return index


def coordinate_of(shape: Shape, index: int) -> Coordinate:
    coordinate = []
    for extent in shape:
        index, position = divmod(index, extent)
        coordinate.append(position)
    return tuple(coordinate)


def coordinates(shape: Shape) -> Iterator[Coordinate]:
    """All coordinates in the order of their indices."""
    return (
        tuple(reversed(c))
        for c in itertools.product(*(range(extent) for extent in reversed(shape)))
    )


@functools.cache
def full_mask(shape: Shape) -> int:
    return (1 << math.prod(shape)) - 1


def chips_of(mask: int) -> Iterator[int]:
    """Indices in `mask`, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def mask_of(chips: Iterable[int]) -> int:
    mask = 0
    for chip in chips:
        mask |= 1 << chip
    return mask


def rotations(shape: Shape) -> tuple[Shape, ...]:
    """Every distinct order of the dimensions, the given one first, then ascending: a fixed
    order."""
    others = sorted(set(itertools.permutations(shape)) - {shape})
    return (shape, *others)


@functools.lru_cache(maxsize=8192)
def box_mask(pod: Shape, origin: Coordinate, shape: Shape) -> int:
    """The chips of a box of the pod's torus; it wraps around where it reaches over an end. `shape`
    <= `pod`."""
    mask = 1
    stride = 1
    for extent, start, length in zip(pod, origin, shape, strict=True):
        # Copies of what is known of the lower dimensions, one per position along this one.
        copies = 0
        for step in range(length):
            copies |= mask << ((start + step) % extent * stride)
        mask = copies
        stride *= extent
    return mask


def free_origins(pod: Shape, free: int, shape: Shape) -> int:
    """All origins, as a bit set, at which a box of `shape` has only free chips; boxes wrap around.

    For all origins at once: shift along a dimension by 1, 2, 4, ... positions and AND, so a box of
    length n needs about log2(n) shifts in that dimension. What stays set has the whole box free.
    """
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """A pod divided into blocks: cubes of 4x4x4 chips, in two dimensions hosts of 2x2.

    `grid`: blocks per dimension; a set of blocks is a bit set over it. Block `i` has its chips at
    `offset[i]` plus the bits of `full[i]`. Where an extent is not a multiple of the edge, the last
    blocks are smaller; `complete` are the others.
    """

    pod: Shape
    edge: Shape
    grid: Shape
    offset: tuple[int, ...]
    full: tuple[int, ...]
    complete: int

    def split(self, free: int) -> tuple[int, dict[int, int]]:
        """The complete blocks that are wholly free, and of the other blocks the chips that are
        (relative to the
        block), where there are any."""
        whole = 0
        partial = {}
        # Cut along the last dimension first: shifts of a short integer are cheap.
        per_layer = math.prod(self.grid[:-1])
        layer_chips = (1 << (self.edge[-1] * math.prod(self.pod[:-1]))) - 1
        for first in range(0, len(self.full), per_layer):
            layer = (free >> self.offset[first]) & layer_chips
            if not layer:
                continue
            for index in range(first, first + per_layer):
                full = self.full[index]
                pattern = (layer >> (self.offset[index] - self.offset[first])) & full
                if pattern == full and self.complete >> index & 1:
                    whole |= 1 << index
                elif pattern:
                    partial[index] = pattern
        return whole, partial

    def chips(self, blocks: int) -> int:
        """The chips of a set of blocks."""
        chips = 0
        while blocks:
            lowest = blocks & -blocks
            index = lowest.bit_length() - 1
            chips |= self.full[index] << self.offset[index]
            blocks ^= lowest
        return chips

    def blocks_with(self, chips: int) -> int:
        """The blocks in which a set of chips has any."""
        blocks = 0
        while chips:
            at = coordinate_of(self.pod, (chips & -chips).bit_length() - 1)
            index = index_of(self.grid, tuple(p // e for p, e in zip(at, self.edge, strict=True)))
            blocks |= 1 << index
            chips &= ~(self.full[index] << self.offset[index])
        return blocks


@functools.lru_cache(maxsize=1024)
def blocks_of(pod: Shape) -> Blocks:
    edge = (CUBE_EDGE_CHIPS if len(pod) == 3 else HOST_EDGE_CHIPS,) * len(pod)
    grid = tuple(-(-extent // e) for extent, e in zip(pod, edge, strict=True))
    offset, full, complete = [], [], 0
    for index, block in enumerate(coordinates(grid)):
        origin = tuple(b * e for b, e in zip(block, edge, strict=True))
        size = tuple(min(e, extent - o) for o, e, extent in zip(origin, edge, pod, strict=True))
        offset.append(index_of(pod, origin))
        full.append(box_mask(pod, (0,) * len(pod), size))
        if size == edge:
            complete |= 1 << index
    return Blocks(pod, edge, grid, tuple(offset), tuple(full), complete)


def hosts_of(pod: Shape, host: Sequence[int], origin: Coordinate, shape: Shape) -> tuple[int, ...]:
    """Masks of the hosts of a box, in host order (x fastest): what worker K of a slice has.

    `host` is the chips of one host per dimension and divides `shape` in this orientation.
    """
    steps = [range(0, extent, per) for extent, per in zip(shape, host, strict=True)]
    blocks = (tuple(reversed(c)) for c in itertools.product(*reversed(steps)))
    size = tuple(host)
    return tuple(
        box_mask(pod, tuple((o + s) % e for o, s, e in zip(origin, block, pod, strict=True)), size)
        for block in blocks
    )
