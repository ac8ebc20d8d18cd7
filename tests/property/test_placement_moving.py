"""What must go or move for a slice: the lowest price against brute force, and moves that can be
made."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.domain.fleet import Pod
from podyard.hardware import torus
from podyard.hardware.accelerator_types import AcceleratorType, parse
from podyard.scheduler.defragment import advice
from podyard.scheduler.placement import PodSpace, Takeable, cheapest_box, find_box
from tests.property import placement_brute_force as brute_force

TORUS = [brute_force.pod("v2", 8, 8), brute_force.pod("v5e", 4, 6), brute_force.pod("v4", 8, 4, 8)]
SWITCHED = [
    brute_force.pod("v4", 8, 4, 8, switched=True),
    brute_force.pod("v5p", 12, 8, 4, switched=True),
]
PODS = [*TORUS, *SWITCHED]
NAMES = [f"{pod.generation.name} {'switch' if pod.switched else 'torus'}" for pod in PODS]


def two_pods(pod: Pod) -> list[Pod]:
    return [
        brute_force.pod(pod.generation.name, *pod.shape, switched=pod.switched, pod_id=name)
        for name in "ab"
    ]


@pytest.mark.parametrize("pod", PODS, ids=NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_cheapest_box_costs_what_brute_force_says(pod: Pod, seed: int) -> None:
    chance = random.Random(seed)
    pods = two_pods(pod)
    free, takeable = zip(*(brute_force.random_takeable(item, chance) for item in pods), strict=True)
    given = [[Takeable(*item) for item in items] for items in takeable]
    for kind in brute_force.kinds(pod):
        found = cheapest_box(pods, free, given, kind)
        lowest = brute_force.lowest_cost(pods, free, takeable, kind)
        assert (found is not None) == (lowest is not None)
        if found is not None:
            box, taken = found
            assert sum(given[number][position].cost for number, position in taken) == lowest
            assert list(taken) == sorted(set(taken))
            assert {pods[number].pod_id for number, _ in taken} <= {box.pod_id}
            _can_stand(
                pods, free, box.pod_id, box.chips, kind, [given[n][p].chips for n, p in taken]
            )


@pytest.mark.parametrize("pod", SWITCHED, ids=NAMES[len(TORUS) :])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_slices_of_several_cubes_go_for_a_legal_box_without_need_for_more(
    pod: Pod, seed: int
) -> None:
    free, items = brute_force.random_takeable(pod, random.Random(seed), joined=True)
    given = [Takeable(*item) for item in items]
    for kind in brute_force.kinds(pod):
        found = cheapest_box([pod], [free], [given], kind)
        lowest = brute_force.lowest_cost([pod], [free], [items], kind)
        assert (found is not None) == (lowest is not None)
        if found is not None and lowest is not None:
            box, taken = found
            gone = [given[position] for _, position in taken]
            assert sum(item.cost for item in gone) >= lowest
            _can_stand([pod], [free], box.pod_id, box.chips, kind, [item.chips for item in gone])
            for item in gone:
                assert item.chips & box.chips


def test_a_slice_in_many_cubes_counts_once() -> None:
    pod = brute_force.pod("v4", 4, 4, 16, switched=True)
    cube = [torus.box_mask(pod.shape, (0, 0, z), (4, 4, 4)) for z in (0, 4, 8, 12)]
    # Two slices of a cube for 3 each, or one of two cubes for 5.
    items = [Takeable(cube[0], 3), Takeable(cube[1], 3), Takeable(cube[2] | cube[3], 5)]
    found = cheapest_box([pod], [0], [items], parse("v4-256"))
    assert found is not None
    assert found[1] == ((0, 2),)
    found = cheapest_box([pod], [0], [items], parse("v4-128"))
    assert found is not None
    assert found[1] == ((0, 0),)


def _can_stand(
    pods: list[Pod],
    free: tuple[int, ...] | list[int],
    pod_id: str,
    chips: int,
    kind: AcceleratorType,
    gone: list[int],
) -> None:
    (number,) = (number for number, pod in enumerate(pods) if pod.pod_id == pod_id)
    assert chips & ~(free[number] | sum(gone)) == 0
    assert brute_force.is_legal(pods[number], chips, kind)


@pytest.mark.parametrize("pod", PODS, ids=NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_moves_can_be_made_in_their_order_and_then_the_slice_fits(pod: Pod, seed: int) -> None:
    chance = random.Random(seed)
    pods = two_pods(pod)
    free, slices = _scattered(pods, chance)
    for wanted in brute_force.kinds(pod):
        moves = advice(pods, slices, free, wanted)
        fits = find_box(pods, free, wanted) is not None
        assert (moves == ()) == fits
        if moves is None:
            assert not _one_move_helps(pods, slices, free, wanted)
            continue
        room = {pod.pod_id: chips for pod, chips in zip(pods, free, strict=True)}
        held = {name: (pod_id, chips, kind) for name, pod_id, chips, kind in slices}
        for move in moves:
            pod_id, chips, kind = held.pop(move.slice_id)
            assert chips & brute_force.bit(pod.shape, move.origin_from)
            assert move.to.chips & ~room[move.to.pod_id] == 0
            assert brute_force.is_legal(pod, move.to.chips, kind)
            room[move.to.pod_id] &= ~move.to.chips
            room[pod_id] |= chips
        assert any(brute_force.is_free_somewhere(item, room[item.pod_id], wanted) for item in pods)


def _scattered(
    pods: list[Pod], chance: random.Random
) -> tuple[list[int], list[tuple[str, str, int, AcceleratorType]]]:
    """Pods after many slices have come and most have gone again."""
    free = []
    slices = []
    number = itertools.count()
    for pod in pods:
        space = PodSpace(pod, torus.full_mask(pod.shape))
        for kind in chance.choices(brute_force.kinds(pod), k=40):
            boxes = [space.find(kind)] if space.joins_cubes(kind) else list(space.boxes(kind))
            box = chance.choice(boxes) if boxes else None
            if box is not None:
                space.take(box)
                slices.append((f"s{next(number)}", pod.pod_id, box.chips, kind))
        free.append(space.free)
    for item in chance.sample(slices, len(slices) * 2 // 3):
        slices.remove(item)
        free["ab".index(item[1])] |= item[2]
    return free, slices


def _one_move_helps(
    pods: list[Pod],
    slices: list[tuple[str, str, int, AcceleratorType]],
    free: list[int],
    wanted: AcceleratorType,
) -> bool:
    for _, pod_id, chips, kind in slices:
        without = list(free)
        without["ab".index(pod_id)] |= chips
        box = find_box(pods, without, wanted)
        if box is not None:
            rest = list(free)
            rest["ab".index(box.pod_id)] &= ~box.chips
            if find_box(pods, rest, kind) is not None:
                return True
    return False


def test_the_advice_is_the_move_of_the_fewest_chips() -> None:
    pod = brute_force.pod("v2", 8, 8)
    small = torus.box_mask(pod.shape, (0, 0), (2, 2))
    large = torus.box_mask(pod.shape, (4, 4), (4, 4))
    gap = torus.box_mask(pod.shape, (0, 4), (2, 2))
    slices = [
        ("large", "p", large, parse("v2-32")),
        ("small", "p", small, parse("v2-8")),
    ]
    free = torus.box_mask(pod.shape, (0, 0), (4, 4)) & ~small | gap
    moves = advice([pod], slices, [free], parse("v2-32"))
    assert moves is not None
    (move,) = moves
    assert (move.slice_id, move.origin_from, move.to.origin) == ("small", (0, 0), (0, 4))
    assert advice([pod], slices, [free], parse("v2-128")) is None
    assert advice([pod], slices, [free & ~gap], parse("v2-32")) is None
