"""Which places are legal and free, chip by chip: written without the code that it is held
against."""

from __future__ import annotations

import functools
import itertools
import operator
import random
from collections.abc import Iterable, Sequence

from podyard.domain.fleet import Pod
from podyard.hardware.accelerator_types import AcceleratorType, from_config
from podyard.hardware.generations import GENERATIONS

Chip = tuple[int, ...]


def pod(generation: str, *shape: int, switched: bool = False, pod_id: str = "p") -> Pod:
    return Pod(pod_id, "us-central1-a", GENERATIONS[generation], shape, switched)


# Every case that is special: one host wide, longer than a box, extents that are no multiple of a
# block's edge.
TORUS_PODS = (
    pod("v2", 4, 4),
    pod("v2", 8, 4),
    pod("v2", 6, 10),
    pod("v2", 8, 8),
    pod("v5e", 2, 2),
    pod("v5e", 4, 6),
    pod("v6e", 8, 4),
    pod("v4", 8, 4, 8),
    pod("v4", 12, 4, 4),
    pod("v4", 8, 12, 4),
    pod("v4", 2, 2, 4),
    pod("v4", 6, 4, 9),
    pod("v5p", 12, 8, 8),
)
SWITCHED_PODS = (
    pod("v4", 4, 4, 4, switched=True),
    pod("v4", 8, 4, 8, switched=True),
    pod("v5p", 12, 8, 4, switched=True),
)
_KINDS = {
    "v2": ("V2", "2x2 4x4 8x8"),
    "v5e": ("V5LITE_POD", "1x1 2x2 2x4 4x4 4x8"),
    "v6e": ("V6E", "1x1 2x2 2x4 4x4 4x8"),
    "v4": ("V4", "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x8x12 8x8x8"),
    "v5p": ("V5P", "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x8x12 8x8x8 4x4x20"),
}


def kinds(of: Pod) -> tuple[AcceleratorType, ...]:
    wire_type, shapes = _KINDS[of.generation.name]
    return tuple(from_config(wire_type, shape) for shape in shapes.split())


def bit(shape: Chip, chip: Chip) -> int:
    index, stride = 0, 1
    for position, extent in zip(chip, shape, strict=True):
        index += position * stride
        stride *= extent
    return 1 << index


def mask_of(shape: Chip, chips: Iterable[Chip]) -> int:
    return sum(bit(shape, chip) for chip in set(chips))


@functools.cache
def places(pod_shape: Chip, wanted: Chip) -> tuple[int, ...]:
    """Every legal place in an empty torus, as its chips; those below a cube are the places in a
    switched pod too."""
    edge = 4 if len(pod_shape) == 3 else 2
    small = any(length % edge for length in wanted)
    whole = [extent - extent % edge for extent in pod_shape]
    found = []
    for shape in dict.fromkeys(itertools.permutations(wanted)):
        if any(length > extent for length, extent in zip(shape, pod_shape, strict=True)):
            continue
        if set(shape) != {1} and (shape[0] % 2 or shape[1] % 2):
            continue  # it would cut hosts of 2x2x1 chips in two
        for origin in itertools.product(*(range(extent) for extent in pod_shape)):
            ends = [o + length for o, length in zip(origin, shape, strict=True)]
            if small:
                steps = [o % edge % length for o, length in zip(origin, shape, strict=True)]
                inside = all(
                    end <= extent and (end - 1) // edge == o // edge
                    for o, end, extent in zip(origin, ends, pod_shape, strict=True)
                )
                if any(steps) or not inside:
                    continue
            elif any(o % edge for o in origin):
                continue
            chips = [
                tuple(p % extent for p, extent in zip(chip, pod_shape, strict=True))
                for chip in itertools.product(
                    *(range(o, end) for o, end in zip(origin, ends, strict=True))
                )
            ]
            # Blocks that the pod holds only in part are of no use to slices of whole blocks.
            if small or all(p < w for chip in chips for p, w in zip(chip, whole, strict=True)):
                found.append(mask_of(pod_shape, chips))
    return tuple(dict.fromkeys(found))


@functools.cache
def cubes(pod_shape: Chip) -> tuple[int, ...]:
    origins = itertools.product(*(range(0, extent, 4) for extent in pod_shape))
    return tuple(
        mask_of(pod_shape, itertools.product(*(range(o, o + 4) for o in origin)))
        for origin in origins
    )


def joins_cubes(of: Pod, kind: AcceleratorType) -> bool:
    return of.switched and kind.chip_count >= 64


def is_free_somewhere(of: Pod, free: int, kind: AcceleratorType) -> bool:
    if joins_cubes(of, kind):
        return sum(cube & free == cube for cube in cubes(of.shape)) * 64 >= kind.chip_count
    return any(place & free == place for place in places(of.shape, kind.topology.shape))


def is_legal(of: Pod, chips: int, kind: AcceleratorType) -> bool:
    if joins_cubes(of, kind):
        touched = [cube for cube in cubes(of.shape) if cube & chips]
        return sum(touched) == chips and chips.bit_count() == kind.chip_count
    return chips in places(of.shape, kind.topology.shape)


def lowest_cost(
    pods: Sequence[Pod],
    free: Sequence[int],
    takeable: Sequence[Sequence[tuple[int, int]]],
    kind: AcceleratorType,
) -> int | None:
    """Of the takeable slices (chips, cost) that a place needs, each counted once."""
    costs: list[int] = []
    for of, mask, items in zip(pods, free, takeable, strict=True):
        allowed = functools.reduce(operator.or_, (chips for chips, _ in items), mask)
        if joins_cubes(of, kind):
            usable = [cube for cube in cubes(of.shape) if cube & allowed == cube]
            options = [
                sum(chosen) for chosen in itertools.combinations(usable, kind.chip_count // 64)
            ]
        else:
            options = [
                place for place in places(of.shape, kind.topology.shape) if place & allowed == place
            ]
        costs.extend(sum(cost for chips, cost in items if chips & option) for option in options)
    return min(costs, default=None)


def random_free(of: Pod, chance: random.Random) -> int:
    """Whole blocks, hosts and chips are taken or broken: the densities differ from case to case."""
    everywhere = itertools.product(*(range(extent) for extent in of.shape))
    chips = list(everywhere)
    edge = 4 if len(of.shape) == 3 else 2
    for lengths, part in (
        ((edge,) * 3, chance.choice((0.0, 0.2, 0.5))),
        ((2, 2, 1), chance.choice((0.0, 0.1, 0.5))),
    ):
        block_of = {
            chip: tuple(p // length for p, length in zip(chip, lengths, strict=False))
            for chip in chips
        }
        taken = {block for block in dict.fromkeys(block_of.values()) if chance.random() < part}
        chips = [chip for chip in chips if block_of[chip] not in taken]
    broken = chance.sample(chips, min(chance.choice((0, 0, 1, 3, len(chips) // 3)), len(chips)))
    return mask_of(of.shape, set(chips) - set(broken))


def random_takeable(
    of: Pod, chance: random.Random, joined: bool = False
) -> tuple[int, list[tuple[int, int]]]:
    """A pod with slices of random types, some of which may be taken away: the free chips, and
    (chips, cost) of those. `joined`: also slices of several cubes that optical switches join."""
    free = random_free(of, chance)
    items = []
    for kind in chance.choices(kinds(of), k=30):
        if joins_cubes(of, kind):
            whole = [cube for cube in cubes(of.shape) if cube & free == cube]
            count = kind.chip_count // 64
            options = [sum(chance.sample(whole, count))] if joined and len(whole) >= count else []
        else:
            options = [
                place for place in places(of.shape, kind.topology.shape) if place & free == place
            ]
        if options:
            chips = chance.choice(options)
            free &= ~chips
            if chance.random() < 0.8:
                items.append((chips, chance.choice((0, 1, 1, 2, 5, 9))))
    return free, items
