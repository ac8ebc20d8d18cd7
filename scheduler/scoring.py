"""The choice among free places for a slice: the one that leaves the most room for large slices.

Blocks are the unit (podyard.hardware.torus.Blocks): cubes of 4x4x4 chips, in two dimensions hosts
of 2x2.

- A slice of whole blocks in a torus: the box with the fewest free blocks next to it, so that it
  fills gaps and keeps to what is taken, and the free blocks stay together. Counted per box, one AND
  and one bit count on a set of blocks.
- A slice smaller than a block: the block with the fewest free chips that holds it (best fit), so
  that whole blocks stay whole; in it, the place after which the largest of the small shapes still
  fit most often.

docs/internals/scheduler.md has the figures of the rules that were tried.
"""

from __future__ import annotations

import functools

from podyard.hardware.topology import Shape
from podyard.hardware.torus import (
    HOST_EDGE_CHIPS,
    Blocks,
    Coordinate,
    blocks_of,
    box_mask,
    coordinate_of,
    coordinates,
    free_origins,
    full_mask,
    index_of,
    rotations,
)

# Chips relative to the block, origin relative to the block, rotation.
PlaceInside = tuple[int, Coordinate, Shape]

# What a place inside a block should leave room for, the most wanted first: the shapes below a cube,
# largest first.
_SMALL_SHAPES: tuple[Shape, ...] = ((2, 4, 4), (2, 2, 4), (2, 2, 2))


def best_origin(grid: Shape, whole: int, shape: Shape) -> tuple[int, int] | None:
    """(free blocks next to the box, its origin) of the best box of `shape` blocks among the free
    blocks `whole`; None when none is free. The first of equals: lowest origin."""
    origins = free_origins(grid, whole, shape) & starts(grid, shape)
    if not origins:
        return None
    besides = _besides(grid, shape)
    if whole == full_mask(grid):
        return besides[0].bit_count(), 0  # all places of an empty torus are alike
    best = -1
    found = 0
    while origins:
        lowest = origins & -origins
        origins ^= lowest
        index = lowest.bit_length() - 1
        free_beside = (besides[index] & whole).bit_count()
        if best < 0 or free_beside < best:
            best, found = free_beside, index
            if not best:
                break
    return best, found


@functools.lru_cache(maxsize=4096)
def starts(grid: Shape, shape: Shape) -> int:
    """One origin for each box: along a dimension that the box spans, all starts are the same
    box."""
    once = tuple(
        1 if length == extent else extent for extent, length in zip(grid, shape, strict=True)
    )
    return box_mask(grid, (0,) * len(grid), once)


# As many shapes as the legal ones of v4 and v5p in all their rotations: about 3,000.
@functools.lru_cache(maxsize=4096)
def _besides(grid: Shape, shape: Shape) -> tuple[int, ...]:
    """For each origin the blocks that touch the box with a face."""
    found = []
    for origin in coordinates(grid):
        around = 0
        for dimension, (extent, length) in enumerate(zip(grid, shape, strict=True)):
            face = (*shape[:dimension], 1, *shape[dimension + 1 :])
            for step in (-1, length):
                start = (
                    *origin[:dimension],
                    (origin[dimension] + step) % extent,
                    *origin[dimension + 1 :],
                )
                around |= box_mask(grid, start, face)
        found.append(around & ~box_mask(grid, origin, shape))
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def orientations(shape: Shape, pod: Shape) -> tuple[Shape, ...]:
    """Rotations of `shape` that fit the pod and keep hosts whole: the plane of a host is that of
    the first two dimensions, so both are even; a single chip is a whole host."""
    return tuple(
        turned
        for turned in rotations(shape)
        if all(a <= b for a, b in zip(turned, pod, strict=True))
        and (set(shape) == {1} or not (turned[0] % HOST_EDGE_CHIPS or turned[1] % HOST_EDGE_CHIPS))
    )


def places_inside(pod: Shape, pattern: int, shape: Shape) -> list[PlaceInside]:
    """Return where a slice smaller than a block can stand in a block with the free chips `pattern`:
    at multiples of its lengths."""
    return [place for place in _places(pod, shape) if place[0] & pattern == place[0]]


@functools.lru_cache(maxsize=1024)
def _places(pod: Shape, shape: Shape) -> tuple[PlaceInside, ...]:
    blocks = blocks_of(pod)
    found = []
    for turned in orientations(
        shape, tuple(min(e, extent) for e, extent in zip(blocks.edge, pod, strict=True))
    ):
        for step in coordinates(
            tuple(e // length for e, length in zip(blocks.edge, turned, strict=True))
        ):
            origin = tuple(s * length for s, length in zip(step, turned, strict=True))
            if all(
                o + length <= extent for o, length, extent in zip(origin, turned, pod, strict=True)
            ):
                chips = box_mask(pod, (0,) * len(pod), turned) << index_of(pod, origin)
                found.append((chips, origin, turned))
    return tuple(found)


@functools.lru_cache(maxsize=65536)
def best_inside(pod: Shape, pattern: int, shape: Shape) -> PlaceInside | None:
    """The best of `places_inside`; the first of equals."""
    places = places_inside(pod, pattern, shape)
    return max(places, key=lambda place: _room_left(pod, pattern & ~place[0]), default=None)


def _room_left(pod: Shape, pattern: int) -> tuple[int, ...]:
    if len(pod) == 2:
        return ()
    return tuple(len(places_inside(pod, pattern, shape)) for shape in _SMALL_SHAPES)


def block_origin(blocks: Blocks, index: int) -> Coordinate:
    """The first chip of a block."""
    return tuple(p * e for p, e in zip(coordinate_of(blocks.grid, index), blocks.edge, strict=True))
