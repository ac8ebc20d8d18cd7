"""Exact search for free chips, in a torus and in a pod with optical switches.

Nothing is approximated: if an allowed place is free, one is found; podyard.scheduler.scoring says
which of several.

Where a slice may stand:
  - whole blocks (cubes of 4x4x4 chips; in two dimensions hosts of 2x2): in a torus a rotation of
    the type's topology that starts on a block boundary. It may reach over the end of a dimension: a
    slice that wraps is a box like any other. With optical switches any free cubes do, in any order;
  - smaller than a block: a rotation that keeps hosts whole, at multiples of its lengths, inside one
    block;
  - a block that the pod holds only in part (the edge does not divide its extent) takes only such
    small slices, so a slice of whole blocks does not reach over that end.
A twist changes the links at the ends of a slice, not its chips: twisted shapes are placed like the
others. On a real torus without switches there is no such link; Podyard gives the twisted topology
all the same.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from podyard.domain.fleet import Pod
from podyard.hardware.accelerator_types import AcceleratorType, all_types
from podyard.hardware.topology import CUBE_CHIPS, Shape
from podyard.hardware.torus import blocks_of, box_mask, chips_of, coordinate_of, free_origins
from podyard.scheduler import scoring, switched

# Cached divisions of pods into free blocks: several pods and several states of each within one
# cycle.
_SPLITS_MAX = 512

# Lower is better: (0: in a block in use anyway, 1: whole blocks; free chips of that block, or free
# blocks next to it).
Score = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class ChipBox:
    """Chips of one pod. In a torus they are the box of `shape` (the rotation that was used, in the
    pod's dimensions)
    at `origin`. Joined by optical switches they are cubes from anywhere: `origin` is the first chip
    of the lowest one and `shape` the topology's own. `blocks` are the blocks in which it has
    chips."""

    pod_id: str
    origin: Shape
    shape: Shape
    chips: int
    blocks: int


@dataclasses.dataclass(frozen=True, slots=True)
class Takeable:
    """A slice that may be taken away: the chips that come free (none that are broken), and what
    that costs, in any
    unit, 0 or more."""

    chips: int
    cost: int


class PodSpace:
    """The free chips of one pod, kept up to date while boxes are taken and given back."""

    __slots__ = ("_blocks", "_partial", "_whole", "pod")

    def __init__(self, pod: Pod, free: int) -> None:
        self.pod = pod
        self._blocks = blocks_of(pod.shape)
        whole, partial = _split(pod.shape, free)
        self._whole = whole
        self._partial = dict(partial)

    @property
    def free(self) -> int:
        """The free chips as a bit set."""
        chips = self._blocks.chips(self._whole)
        for index, pattern in self._partial.items():
            chips |= pattern << self._blocks.offset[index]
        return chips

    def find(self, kind: AcceleratorType) -> ChipBox | None:
        """The best free place; None only if there is none."""
        best = self.best(kind)
        return None if best is None else best[1]

    def best(self, kind: AcceleratorType) -> tuple[Score, ChipBox] | None:
        """`find` with the score by which places in several pods are compared."""
        shape = kind.topology.shape
        turned = _turn(self.pod.shape, shape)
        if turned is None:
            return self._best_small(kind)
        return self._best_switched(kind) if self.pod.switched else self._best_in_torus(turned)

    def joins_cubes(self, kind: AcceleratorType) -> bool:
        """Return whether a slice of this type is cubes that optical switches join, so that any free
        ones do."""
        return self.pod.switched and _turn(self.pod.shape, kind.topology.shape) is not None

    def holds(self, kind: AcceleratorType) -> bool:
        """Return whether `find` would find a place."""
        shape = kind.topology.shape
        turned = _turn(self.pod.shape, shape)
        if turned is None:
            return any(
                scoring.best_inside(self.pod.shape, pattern, shape)
                for _, pattern in self.patterns()
            )
        if self.pod.switched:
            return self._whole.bit_count() * CUBE_CHIPS >= kind.chip_count
        return any(free_origins(self._blocks.grid, self._whole, units) for units, _ in turned)

    def take(self, box: ChipBox) -> None:
        """Takes the chips of a box of this pod, all of which must be free."""
        if _turn(self.pod.shape, box.shape) is None:
            index, inner = self._inner(box)
            pattern = (
                self._blocks.full[index] if self._whole >> index & 1 else self._partial.pop(index)
            )
            self._whole &= ~box.blocks
            if pattern != inner:
                self._partial[index] = pattern & ~inner
        else:
            self._whole &= ~box.blocks

    def give(self, box: ChipBox) -> None:
        """Gives back what `take` took; none of the chips may have broken since."""
        if _turn(self.pod.shape, box.shape) is None:
            index, inner = self._inner(box)
            pattern = self._partial.pop(index, 0) | inner
            if pattern == self._blocks.full[index] and self._blocks.complete >> index & 1:
                self._whole |= box.blocks
            else:
                self._partial[index] = pattern
        else:
            self._whole |= box.blocks

    def boxes(self, kind: AcceleratorType) -> Iterator[ChipBox]:
        """Every free place, in the order of rotations and origins; not for cubes that optical
        switches join, of which any choice is a place."""
        shape = kind.topology.shape
        turned = _turn(self.pod.shape, shape)
        if turned is None:
            for index, pattern in sorted(self.patterns()):
                for place in scoring.places_inside(self.pod.shape, pattern, shape):
                    yield self._small_box(index, place)
            return
        for units, size in turned:
            origins = free_origins(self._blocks.grid, self._whole, units) & scoring.starts(
                self._blocks.grid, units
            )
            for origin in chips_of(origins):
                yield self._torus_box(units, size, origin)

    def box_of_cubes(self, kind: AcceleratorType, cubes: int) -> ChipBox:
        """The slice that these cubes, joined by optical switches, are."""
        first = scoring.block_origin(self._blocks, (cubes & -cubes).bit_length() - 1)
        return ChipBox(
            self.pod.pod_id, first, kind.topology.shape, self._blocks.chips(cubes), cubes
        )

    def patterns(self) -> Iterator[tuple[int, int]]:
        """The free chips of each block that has any: (block, chips relative to it), in no order
        that matters."""
        yield from self._partial.items()
        for index in chips_of(self._whole):
            yield index, self._blocks.full[index]

    @property
    def whole(self) -> int:
        """The blocks that are wholly free."""
        return self._whole

    def _best_in_torus(self, turned: Sequence[tuple[Shape, Shape]]) -> tuple[Score, ChipBox] | None:
        best: tuple[int, int] | None = None
        for units, size in turned:
            found = scoring.best_origin(self._blocks.grid, self._whole, units)
            if found is not None and (best is None or found[0] < best[0]):
                best, best_units, best_size = found, units, size
        if best is None:
            return None
        return (1, best[0]), self._torus_box(best_units, best_size, best[1])

    def _best_switched(self, kind: AcceleratorType) -> tuple[Score, ChipBox] | None:
        count = kind.chip_count // CUBE_CHIPS
        cubes = switched.lowest_cubes(self._whole, count)
        if cubes is None:
            return None
        return (1, self._whole.bit_count() - count), self.box_of_cubes(kind, cubes)

    def _best_small(self, kind: AcceleratorType) -> tuple[Score, ChipBox] | None:
        shape = kind.topology.shape
        best: tuple[int, int] | None = None
        for index, pattern in self._partial.items():
            room = (pattern.bit_count(), index)
            if room[0] >= kind.chip_count and (best is None or room < best):
                place = scoring.best_inside(self.pod.shape, pattern, shape)
                if place is not None:
                    best, best_place = room, place
        if best is not None:
            return (0, best[0]), self._small_box(best[1], best_place)
        # None of the blocks in use has room: a whole one is broken.
        block = scoring.best_origin(self._blocks.grid, self._whole, (1,) * len(self.pod.shape))
        place = (
            None
            if block is None
            else scoring.best_inside(self.pod.shape, self._blocks.full[block[1]], shape)
        )
        if block is None or place is None:
            return None
        return (1, block[0]), self._small_box(block[1], place)

    def _torus_box(self, units: Shape, size: Shape, block: int) -> ChipBox:
        origin = scoring.block_origin(self._blocks, block)
        blocks = box_mask(self._blocks.grid, coordinate_of(self._blocks.grid, block), units)
        return ChipBox(
            self.pod.pod_id, origin, size, box_mask(self.pod.shape, origin, size), blocks
        )

    def _small_box(self, block: int, place: scoring.PlaceInside) -> ChipBox:
        chips, inside, size = place
        start = scoring.block_origin(self._blocks, block)
        origin = tuple(a + b for a, b in zip(start, inside, strict=True))
        return ChipBox(
            self.pod.pod_id, origin, size, chips << self._blocks.offset[block], 1 << block
        )

    def _inner(self, box: ChipBox) -> tuple[int, int]:
        """Of a box smaller than a block: the block, and the chips relative to it."""
        index = box.blocks.bit_length() - 1
        return index, box.chips >> self._blocks.offset[index]


def find_box(pods: Sequence[Pod], free: Sequence[int], kind: AcceleratorType) -> ChipBox | None:
    """The best free place in any of the pods (the first of equals); None only if no legal place is
    free. `free` has
    one bit set per pod. A caller that decides often keeps `PodSpace`s instead and asks
    `best_box`."""
    return best_box(_spaces(pods, free, kind.chip_count), kind)


def best_box(spaces: Sequence[PodSpace], kind: AcceleratorType) -> ChipBox | None:
    """`find_box` over spaces that are kept up to date."""
    best: tuple[Score, ChipBox] | None = None
    for space in spaces:
        found = space.best(kind)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return None if best is None else best[1]


def largest_free_box(pods: Sequence[Pod], free: Sequence[int]) -> AcceleratorType | None:
    """The largest named type that would fit now, for the reason why another did not; None when
    nothing fits."""
    spaces = _spaces(pods, free, 1)
    if not spaces:
        return None
    most = max(chips.bit_count() for chips in free)
    for kind in reversed(all_types(pods[0].generation)):
        if kind.chip_count <= most and any(space.holds(kind) for space in spaces):
            return kind
    return None


def fragmentation(pods: Sequence[Pod], free: Sequence[int]) -> float:
    """Return how much smaller the largest slice is for the free chips being scattered, from 0.0 to
    below or equal 1.0.

    1 - a / b in chips: `a` is the largest named type that fits now (0 if none), `b` the largest
    that an empty pod holds and that has no more chips than the freest pod has free. 0.0: nothing
    larger could be had by moving slices, and so also when nothing is free. Chips that are broken
    are neither free nor expected to be.
    """
    if not pods:
        return 0.0
    most = max(chips.bit_count() for chips in free)
    kinds = all_types(pods[0].generation)
    possible = [
        k.chip_count
        for k in kinds
        if k.chip_count <= most and any(p.can_hold(k.topology.shape) for p in pods)
    ]
    if not possible:
        return 0.0
    largest = largest_free_box(pods, free)
    return 1.0 - (largest.chip_count if largest else 0) / max(possible)


def cheapest_box(
    pods: Sequence[Pod],
    free: Sequence[int],
    takeable: Sequence[Sequence[Takeable]],
    kind: AcceleratorType,
) -> tuple[ChipBox, tuple[tuple[int, int], ...]] | None:
    """The place for which the slices that must go cost least in all, each counted once whole, and
    those slices as
    (pod, position in that pod's `takeable`). None when there is no place even if all of them go.

    Exact, but for cubes joined by optical switches where takeable slices are in several cubes each
    (switched.cheapest_cubes). Of equals: nothing taken, then the first pod, rotation and origin.
    """
    found = find_box(pods, free, kind)
    if found is not None:
        return found, ()
    best: tuple[int, ChipBox, tuple[tuple[int, int], ...]] | None = None
    for number, (pod, chips, items) in enumerate(zip(pods, free, takeable, strict=True)):
        priced = IfAllGo(pod, chips, items).cheapest(kind, None if best is None else best[0])
        if priced is not None:
            best = (priced.cost, priced.box, tuple((number, position) for position in priced.taken))
    return None if best is None else best[1:]


@dataclasses.dataclass(frozen=True, slots=True)
class Priced:
    """A place, and the slices that must go for it, as positions in `items`."""

    cost: int
    box: ChipBox
    taken: tuple[int, ...]


class IfAllGo:
    """One pod as it would be without all `items`: the places there would be, and what each
    costs."""

    def __init__(self, pod: Pod, free: int, items: Sequence[Takeable]) -> None:
        blocks = blocks_of(pod.shape)
        self._items = items
        self._touched = [blocks.blocks_with(item.chips) for item in items]
        self._in_block: dict[int, list[int]] = {}
        for position, touched in enumerate(self._touched):
            for block in chips_of(touched):
                self._in_block.setdefault(block, []).append(position)
        self._space = PodSpace(
            pod, functools.reduce(lambda chips, item: chips | item.chips, items, free)
        )

    def cheapest(self, kind: AcceleratorType, below: int | None) -> Priced | None:
        """The cheapest place that costs less than `below`."""
        if self._space.joins_cubes(kind):
            chosen = self._cheapest_cubes(kind)
            return chosen if chosen is not None and (below is None or chosen.cost < below) else None
        best: Priced | None = None
        for box in self._space.boxes(kind):
            priced = self._price(box, below)
            if priced is not None:
                below, best = priced.cost, priced
        return best

    def all_places(self, kind: AcceleratorType) -> Iterator[Priced]:
        """Every place in the order of rotations and origins; not for cubes that optical switches
        join."""
        for box in self._space.boxes(kind):
            priced = self._price(box, None)
            assert priced is not None
            yield priced

    def _price(self, box: ChipBox, below: int | None) -> Priced | None:
        cost = 0
        taken: dict[int, None] = {}
        for block in chips_of(box.blocks):
            for position in self._in_block.get(block, ()):
                item = self._items[position]
                if position not in taken and item.chips & box.chips:
                    taken[position] = None
                    cost += item.cost
            if below is not None and cost >= below:
                return None
        return Priced(cost, box, tuple(sorted(taken)))

    def _cheapest_cubes(self, kind: AcceleratorType) -> Priced | None:
        holders = [
            (cubes, item.cost) for cubes, item in zip(self._touched, self._items, strict=True)
        ]
        chosen = switched.cheapest_cubes(self._space.whole, holders, kind.chip_count // CUBE_CHIPS)
        if chosen is None:
            return None
        taken = tuple(chips_of(chosen[1]))
        cost = sum(self._items[position].cost for position in taken)
        return Priced(cost, self._space.box_of_cubes(kind, chosen[0]), taken)


def _spaces(pods: Sequence[Pod], free: Sequence[int], chips_min: int) -> list[PodSpace]:
    """The pods that have so many free chips."""
    pairs = zip(pods, free, strict=True)
    return [PodSpace(pod, chips) for pod, chips in pairs if chips.bit_count() >= chips_min]


@functools.lru_cache(maxsize=_SPLITS_MAX)
def _split(pod: Shape, free: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    whole, partial = blocks_of(pod).split(free)
    return whole, tuple(partial.items())


@functools.lru_cache(maxsize=4096)
def _turn(pod: Shape, shape: Shape) -> tuple[tuple[Shape, Shape], ...] | None:
    """The rotations of a shape of whole blocks that fit the pod, as (blocks, chips) per dimension;
    None for a shape smaller than a block."""
    edge = blocks_of(pod).edge
    if any(length % e for length, e in zip(shape, edge, strict=True)):
        return None
    return tuple(
        (tuple(length // e for length, e in zip(size, edge, strict=True)), size)
        for size in scoring.orientations(shape, pod)
    )
