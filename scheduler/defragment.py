"""Moves that make room for a slice: a report for people, since nothing that is placed moves by
itself."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence

from podyard.domain.fleet import Pod
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.topology import Shape
from podyard.hardware.torus import coordinate_of
from podyard.scheduler.placement import (
    ChipBox,
    IfAllGo,
    PodSpace,
    Priced,
    Takeable,
    cheapest_box,
    find_box,
)

# Places for the wanted slice that are tried, the cheapest first. Each costs a search for every
# slice in its way, some milliseconds in a full pod of 4096 chips; the first few decide, because
# later ones move ever more.
PLACES_MAX = 64

# slice id, pod id, chips, type
Held = tuple[str, str, int, AcceleratorType]


@dataclasses.dataclass(frozen=True, slots=True)
class SliceMove:
    """One slice moves. `origin_from` is the chip with the lowest index of those that it has now."""

    slice_id: str
    origin_from: Shape
    to: ChipBox


def advice(
    pods: Sequence[Pod], slices: Sequence[Held], free: Sequence[int], wanted: AcceleratorType
) -> tuple[SliceMove, ...] | None:
    """The moves, in the order in which to make them, after which `wanted` fits; () when it fits
    now, None when no way was found. Each goes to chips that are free at that time, also those that
    earlier moves have left.

    Looked at are the places for `wanted` with the fewest chips in the way, at most PLACES_MAX of
    them, and the slices there move out of it: so of what works, what moves the fewest chips. That
    further slices move to make room for those is not looked at. `free` has one bit set per pod,
    without broken chips.
    """
    if find_box(pods, free, wanted) is not None:
        return ()
    held = [[item for item in slices if item[1] == pod.pod_id] for pod in pods]
    if any(PodSpace(pod, 0).joins_cubes(wanted) for pod in pods):
        return _for_cubes(pods, held, free, wanted)
    places: list[tuple[int, int, Priced]] = []
    for number, (pod, chips) in enumerate(zip(pods, free, strict=True)):
        pod_places = IfAllGo(pod, chips, _takeable(held[number])).all_places(wanted)
        places.extend((place.cost, number, place) for place in pod_places)
    for _, number, place in heapq.nsmallest(PLACES_MAX, places, key=lambda item: item[0]):
        moves, stuck = _move_out(
            pods, free, place.box, [held[number][position] for position in place.taken]
        )
        if stuck is None:
            return moves
    return None


def _for_cubes(
    pods: Sequence[Pod], held: list[list[Held]], free: Sequence[int], wanted: AcceleratorType
) -> tuple[SliceMove, ...] | None:
    """Any cubes do, so places are not counted through: a slice that finds no other place stays, and
    the cheapest
    cubes without it are next."""
    for _ in range(PLACES_MAX):
        found = cheapest_box(pods, free, [_takeable(items) for items in held], wanted)
        if found is None:
            return None
        box, taken = found
        moves, stuck = _move_out(
            pods, free, box, [held[number][position] for number, position in taken]
        )
        if stuck is None:
            return moves
        held = [[item for item in items if item is not stuck] for items in held]
    return None


def _takeable(items: Sequence[Held]) -> list[Takeable]:
    return [Takeable(chips, chips.bit_count()) for _, _, chips, _ in items]


def _move_out(
    pods: Sequence[Pod], free: Sequence[int], kept: ChipBox, in_the_way: Sequence[Held]
) -> tuple[tuple[SliceMove, ...], Held | None]:
    """The moves that empty `kept`, and the largest slice that finds no other place, if one does
    not. The largest that can move goes first; what it leaves outside of `kept` may be where another
    goes."""
    number_of = {pod.pod_id: number for number, pod in enumerate(pods)}
    room = list(free)
    room[number_of[kept.pod_id]] &= ~kept.chips
    waiting = sorted(in_the_way, key=lambda item: (-item[3].chip_count, item[0]))
    moves: list[SliceMove] = []
    while waiting:
        for item in waiting:
            to = find_box(pods, room, item[3])
            if to is not None:
                break
        else:
            return (), waiting[0]
        slice_id, pod_id, chips, _ = item
        waiting.remove(item)
        room[number_of[to.pod_id]] &= ~to.chips
        room[number_of[pod_id]] |= chips & ~(kept.chips if kept.pod_id == pod_id else 0)
        first = coordinate_of(pods[number_of[pod_id]].shape, (chips & -chips).bit_length() - 1)
        moves.append(SliceMove(slice_id, first, to))
    return tuple(moves), None
