"""Searches that are wrong on purpose: each is caught by the comparison with brute force that the
right one passes."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from podyard.domain.fleet import Pod
from podyard.hardware import torus
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.topology import Shape
from podyard.scheduler import placement, scoring, switched
from podyard.scheduler.placement import ChipBox, Takeable, cheapest_box, find_box
from tests.property import placement_brute_force as brute_force

SEEDS = range(12)
COST_SEEDS = range(100)
Find = Callable[[Sequence[Pod], Sequence[int], AcceleratorType], ChipBox | None]


@functools.cache
def cases() -> tuple[tuple[Pod, int, AcceleratorType, bool], ...]:
    """(pod, free chips, type, whether brute force finds a place)."""
    found = []
    for pod in (*brute_force.TORUS_PODS[:12], *brute_force.SWITCHED_PODS):
        for seed in SEEDS:
            free = brute_force.random_free(pod, random.Random(seed))
            for kind in brute_force.kinds(pod):
                found.append((pod, free, kind, brute_force.is_free_somewhere(pod, free, kind)))
    return tuple(found)


def is_caught(find: Find) -> bool:
    for pod, free, kind, possible in cases():
        box = find([pod], [free], kind)
        if (box is not None) != possible:
            return True
        if box is not None and (
            box.chips & ~free or not brute_force.is_legal(pod, box.chips, kind)
        ):
            return True
    return False


@functools.cache
def cost_cases() -> tuple[tuple[Pod, int, tuple[Takeable, ...], AcceleratorType, int | None], ...]:
    """(pod, free chips, what may be taken, type, the lowest cost)."""
    found = []
    for pod in (
        brute_force.pod("v2", 8, 8),
        brute_force.pod("v4", 8, 4, 8),
        brute_force.SWITCHED_PODS[1],
    ):
        for seed in COST_SEEDS:
            free, items = brute_force.random_takeable(pod, random.Random(seed))
            for kind in brute_force.kinds(pod):
                lowest = brute_force.lowest_cost([pod], [free], [items], kind)
                found.append((pod, free, tuple(Takeable(*item) for item in items), kind, lowest))
    return tuple(found)


def is_cost_caught() -> bool:
    for pod, free, items, kind, lowest in cost_cases():
        found = cheapest_box([pod], [free], [items], kind)
        if (found is None) != (lowest is None):
            return True
        if found is not None and lowest is not None:
            box, taken = found
            gone = [items[position] for _, position in taken]
            freed = functools.reduce(lambda chips, item: chips | item.chips, gone, free)
            if box.chips & ~freed or not brute_force.is_legal(pod, box.chips, kind):
                return True
            if sum(item.cost for item in gone) != lowest or not all(
                item.chips & box.chips for item in gone
            ):
                return True
    return False


def test_the_right_search_is_not_caught() -> None:
    assert not is_caught(find_box)


@pytest.mark.slow
def test_the_right_price_is_not_caught() -> None:
    assert not is_cost_caught()


def without_wrap(pod: Shape, free: int, shape: Shape) -> int:
    origins = torus.free_origins(pod, free, shape)
    inside = torus.box_mask(
        pod, (0,) * len(pod), tuple(e - n + 1 for e, n in zip(pod, shape, strict=True))
    )
    return origins & inside


def one_step_beside(blocks: torus.Blocks, index: int) -> torus.Coordinate:
    first, *rest = BLOCK_ORIGIN(blocks, index)
    return ((first + 1) % blocks.pod[0], *rest)


def anywhere(pods: Sequence[Pod], free: Sequence[int], kind: AcceleratorType) -> ChipBox | None:
    """Boxes of a torus start at any chip."""
    if brute_force.joins_cubes(pods[0], kind):
        return find_box(pods, free, kind)
    shape = pods[0].shape
    for turned in scoring.orientations(kind.topology.shape, shape):
        origins = torus.free_origins(shape, free[0], turned)
        if origins:
            at = torus.coordinate_of(shape, (origins & -origins).bit_length() - 1)
            return ChipBox(pods[0].pod_id, at, turned, torus.box_mask(shape, at, turned), 0)
    return None


def heals_what_is_broken(
    pods: Sequence[Pod], free: Sequence[int], kind: AcceleratorType
) -> ChipBox | None:
    """A block is whole when most of it is free."""
    blocks = torus.blocks_of(pods[0].shape)
    for offset, full in zip(blocks.offset, blocks.full, strict=True):
        if ((free[0] >> offset) & full).bit_count() * 10 >= full.bit_count() * 9:
            free = [free[0] | full << offset]
    return find_box(pods, free, kind)


def any_rotation(shape: Shape, pod: Shape) -> tuple[Shape, ...]:
    return tuple(
        t for t in torus.rotations(shape) if all(a <= b for a, b in zip(t, pod, strict=True))
    )


def partial_blocks_only(
    self: placement.PodSpace, kind: AcceleratorType
) -> tuple[placement.Score, ChipBox] | None:
    """Small slices never break a whole block."""
    found = BEST_SMALL(self, kind)
    return found if found is not None and found[0][0] == 0 else None


def spans_nothing(grid: Shape, shape: Shape) -> int:
    """Boxes that span a dimension are looked for nowhere but at its start, and so are all
    others."""
    once = tuple(1 if length > 1 else extent for extent, length in zip(grid, shape, strict=True))
    return torus.box_mask(grid, (0,) * len(grid), once)


def one_cube_fewer(whole: int, count: int) -> int | None:
    return LOWEST_CUBES(whole, max(1, count - 1))


BEST_SMALL = placement.PodSpace._best_small
LOWEST_CUBES = switched.lowest_cubes
BLOCK_ORIGIN = scoring.block_origin
ORIENTATIONS = scoring.orientations
PATCHES: dict[str, list[tuple[object, str, object]]] = {
    "no wrap-around": [(scoring, "free_origins", without_wrap)],
    "one rotation": [(scoring, "orientations", lambda shape, pod: ORIENTATIONS(shape, pod)[:1])],
    "origin off by one": [(scoring, "block_origin", one_step_beside)],
    "hosts cut": [(scoring, "orientations", any_rotation)],
    "whole blocks never broken": [(placement.PodSpace, "_best_small", partial_blocks_only)],
    "only boxes at the ends": [(scoring, "starts", spans_nothing)],
    "one cube fewer": [(switched, "lowest_cubes", one_cube_fewer)],
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_wrong_part_of_the_search_is_caught(
    name: str, fresh_caches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, attribute, wrong in PATCHES[name]:
        monkeypatch.setattr(owner, attribute, wrong)
    assert is_caught(find_box)


@pytest.mark.parametrize("wrong", [anywhere, heals_what_is_broken])
def test_a_wrong_search_is_caught(wrong: Find) -> None:
    assert is_caught(wrong)


def counted_per_block(
    self: placement.IfAllGo, box: ChipBox, below: int | None
) -> placement.Priced | None:
    """A slice counts once for each block in which it is in the way."""
    priced = PRICE(self, box, None)
    assert priced is not None
    cost = sum(
        self._items[position].cost * (self._touched[position] & box.blocks).bit_count()
        for position in priced.taken
    )
    return dataclasses.replace(priced, cost=cost) if below is None or cost < below else None


def first_place(
    self: placement.IfAllGo, box: ChipBox, below: int | None
) -> placement.Priced | None:
    return PRICE(self, box, None) if below is None else None


def counted_by_slices(
    self: placement.IfAllGo, box: ChipBox, below: int | None
) -> placement.Priced | None:
    """Every slice costs the same."""
    priced = PRICE(self, box, None)
    assert priced is not None
    cost = len(priced.taken)
    return dataclasses.replace(priced, cost=cost) if below is None or cost < below else None


def every_other_place(self: placement.PodSpace, kind: AcceleratorType) -> Iterator[ChipBox]:
    return (box for number, box in enumerate(BOXES(self, kind)) if number % 2 == 0)


PRICE = placement.IfAllGo._price
BOXES = placement.PodSpace.boxes
COST_PATCHES: dict[str, tuple[object, str, object]] = {
    "a slice counts twice": (placement.IfAllGo, "_price", counted_per_block),
    "the first place": (placement.IfAllGo, "_price", first_place),
    "the number of slices": (placement.IfAllGo, "_price", counted_by_slices),
    "every other place": (placement.PodSpace, "boxes", every_other_place),
    "the lowest cubes": (switched, "_price", lambda holders, owners, gone, group, missing: group),
}


@pytest.mark.parametrize("name", COST_PATCHES)
def test_a_wrong_price_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cost_cases()
    monkeypatch.setattr(*COST_PATCHES[name])
    assert is_cost_caught()


@pytest.fixture
def fresh_caches() -> Iterator[None]:
    cases()
    cached = (placement._turn, scoring.starts, scoring._places, scoring.best_inside)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()
