"""The search against brute force, and what no plan may break."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.clock import PlatformTime
from podyard.base.rng import Streams
from podyard.domain.fleet import FleetSnapshot, PlacementRequest, Pod
from podyard.domain.fleet_file import load_fleet
from podyard.domain.node import UsageClass
from podyard.domain.slice import SliceRecord
from podyard.hardware import torus
from podyard.hardware.accelerator_types import AcceleratorType, all_types, host_shape, parse
from podyard.hardware.generations import GENERATIONS
from podyard.scheduler.cycle import decide
from podyard.scheduler.placement import PodSpace, find_box, fragmentation, largest_free_box
from tests.property import placement_brute_force as brute_force
from tests.unit.scheduler.scheduling import assert_no_overlap

FLEET = load_fleet(
    """
zones:
  us-central1-a: {v2: {shape: 8x8, pods: 2}, v5e: {shape: 4x8}}
  us-central2-b: {v4: {shape: 8x4x8}}
  us-central2-c: {v4: {shape: 8x4x8, interconnect: torus}}
"""
)
KINDS = [(zone, kind) for zone in FLEET.zones for kind in FLEET.offered_types(zone)]
PODS = [*brute_force.TORUS_PODS, *brute_force.SWITCHED_PODS]
NAMES = [
    f"{pod.generation.name} {pod.shape} {'switch' if pod.switched else 'torus'}" for pod in PODS
]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=3).map(tuple), st.data())
def test_free_origins_are_exactly_those_of_brute_force(
    pod: tuple[int, ...], data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.integers(1, extent)) for extent in pod)
    free = data.draw(st.integers(0, torus.full_mask(pod)))
    expected = 0
    for index, origin in enumerate(torus.coordinates(pod)):
        box = torus.box_mask(pod, origin, shape)
        if box & free == box:
            expected |= 1 << index
    assert torus.free_origins(pod, free, shape) == expected


@pytest.mark.parametrize("pod", PODS, ids=NAMES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_box_is_found_exactly_when_one_is_free(pod: Pod, seed: int) -> None:
    free = brute_force.random_free(pod, random.Random(seed))
    space = PodSpace(pod, free)
    assert space.free == free
    largest = None
    for kind in brute_force.kinds(pod):
        box = find_box([pod], [free], kind)
        possible = brute_force.is_free_somewhere(pod, free, kind)
        assert (box is not None) == possible == space.holds(kind)
        if box is not None:
            assert box.chips & free == box.chips
            assert brute_force.is_legal(pod, box.chips, kind)
            assert sorted(box.shape) == sorted(kind.topology.shape)
            assert box.chips & brute_force.bit(pod.shape, box.origin)
        if possible and kind in all_types(pod.generation):
            largest = kind
    if largest is not None:
        found = largest_free_box([pod], [free])
        assert found is not None
        assert found.chip_count >= largest.chip_count
        assert find_box([pod], [free], found) is not None


@pytest.mark.parametrize("pod", PODS, ids=NAMES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_space_that_is_kept_up_to_date_is_the_space_made_anew(pod: Pod, seed: int) -> None:
    chance = random.Random(seed)
    free = brute_force.random_free(pod, chance)
    space = PodSpace(pod, free)
    live = []
    for _ in range(40):
        kind = chance.choice(brute_force.kinds(pod))
        box = space.find(kind)
        assert box == find_box([pod], [free], kind)
        if box is not None and chance.random() < 0.7:
            space.take(box)
            free &= ~box.chips
            live.append(box)
        elif live:
            box = live.pop(chance.randrange(len(live)))
            space.give(box)
            free |= box.chips
        assert space.free == free


def test_of_several_pods_the_one_is_taken_that_keeps_the_others_whole() -> None:
    for switched, kind in ((False, "v4-128"), (True, "v4-128"), (False, "v4-8"), (True, "v4-8")):
        pods = [brute_force.pod("v4", 8, 8, 8, switched=switched, pod_id=name) for name in "ab"]
        free = [torus.full_mask((8, 8, 8))] * 2
        free[1] &= ~torus.box_mask((8, 8, 8), (0, 0, 0), (4, 4, 2))
        box = find_box(pods, free, parse(kind))
        assert box is not None
        assert box.pod_id == "b"


def test_a_slice_fills_the_gap_and_leaves_the_large_box() -> None:
    pod = brute_force.pod("v2", 8, 8)
    # Rows 0 to 3 are free to the left of column 4, and so are all of rows 4 to 7: the 2x2 goes to
    # where it is taken.
    free = torus.full_mask((8, 8)) & ~torus.box_mask((8, 8), (2, 0), (6, 4))
    box = find_box([pod], [free], parse("v2-8"))
    assert box is not None
    assert box.origin == (0, 0)
    assert find_box([pod], [free & ~box.chips], parse("v2-32")) is not None


def test_small_slices_share_cubes_so_that_whole_cubes_stay_whole() -> None:
    pod = brute_force.pod("v4", 8, 8, 8, switched=True)
    space = PodSpace(pod, torus.full_mask(pod.shape))
    for name in ("v4-8", "v4-32", "v4-16", "v4-64"):
        box = space.find(parse(name))
        assert box is not None
        space.take(box)
    assert space.whole.bit_count() == 7


def test_a_cube_with_a_broken_chip_holds_small_slices_only() -> None:
    pod = brute_force.pod("v4", 4, 4, 8, switched=True)
    free = torus.full_mask(pod.shape) & ~1
    box = find_box([pod], [free], parse("v4-8"))
    assert box is not None
    assert torus.blocks_of(pod.shape).blocks_with(box.chips) == 1
    assert find_box([pod], [free], parse("v4-256")) is None
    whole = find_box([pod], [free], parse("v4-128"))
    assert whole is not None
    assert whole.origin == (0, 0, 4)


def test_cubes_from_anywhere_form_a_slice_that_says_the_shape_that_was_asked_for() -> None:
    pod = brute_force.pod("v4", 16, 16, 16, switched=True)
    free = sum(
        torus.box_mask(pod.shape, origin, (4, 4, 4))
        for origin in ((4, 0, 0), (12, 8, 4), (0, 4, 12))
    )
    box = find_box([pod], [free], parse("v4-256"))
    assert box is not None
    assert (box.origin, box.shape) == ((4, 0, 0), (4, 4, 8))
    assert box.chips == free & ~torus.box_mask(pod.shape, (0, 4, 12), (4, 4, 4))


def test_fragmentation_is_what_moving_could_win() -> None:
    pod = brute_force.pod("v2", 8, 8)
    full = torus.full_mask((8, 8))
    assert fragmentation([], []) == fragmentation([pod], [0]) == fragmentation([pod], [1]) == 0.0
    assert fragmentation([pod], [full]) == 0.0
    # Free are 32 of 64 chips, as 2x2 boxes that touch at corners only: 4 chips fit at once where 16
    # could.
    corners = ((x, y) for x in range(0, 8, 2) for y in range(0, 8, 2) if (x + y) % 4 == 0)
    chess = sum(torus.box_mask((8, 8), origin, (2, 2)) for origin in corners)
    assert fragmentation([pod], [chess]) == 0.75
    # Every host has lost a chip: nothing fits, and 16 chips could.
    broken = sum(
        torus.box_mask((8, 8), (x, y), (1, 1)) for x in range(0, 8, 2) for y in range(0, 8, 2)
    )
    assert fragmentation([pod], [full & ~broken]) == 1.0
    # 40 free chips in one pod, 4 in the other: the pods do not add up.
    assert (
        fragmentation([pod, pod], [torus.box_mask((8, 8), (0, 0), (8, 4)), 0b11_0000_0011]) == 0.0
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 5)), max_size=40),
    st.lists(st.integers(0, 63), max_size=3),
)
def test_plans_hold_their_invariants(
    wanted: list[tuple[tuple[str, AcceleratorType], int, int]], broken: list[int]
) -> None:
    waiting = [
        PlacementRequest(
            f"n{i}", i, "demo", zone, kind, UsageClass.SPOT, priority, PlatformTime(age)
        )
        for i, ((zone, kind), priority, age) in enumerate(wanted)
    ]
    broken_chips = {"us-central1-a-v2-0": torus.mask_of(broken)}
    plan = decide(FleetSnapshot(FLEET, (), waiting, broken_chips), PlatformTime(9), Streams(0))
    decided = [p.node_key for p in plan.places] + [w.node_key for w in plan.waits]
    assert sorted(decided) == sorted(r.node_key for r in waiting)
    by_key = {request.node_key: request for request in waiting}
    for place in plan.places:
        request = by_key[place.node_key]
        pod = FLEET.pod(place.pod_id)
        assert place.version == request.version
        assert pod.zone == request.zone
        assert pod.generation == request.accelerator_type.generation
        assert brute_force.is_legal(pod, place.chips, request.accelerator_type)
        assert not place.chips & broken_chips.get(place.pod_id, 0)
    assert_no_overlap([SliceRecord(p.node_key, p.node_key, p.pod_id, p.chips) for p in plan.places])
    assert all(wait.reason and wait.message for wait in plan.waits)


def test_every_type_fits_an_empty_full_pod_or_is_larger_than_it_and_keeps_its_hosts_whole() -> None:
    for generation in GENERATIONS.values():
        pod = Pod("p", "us-central1-a", generation, generation.pod_shape)
        for kind in all_types(generation):
            box = find_box([pod], [torus.full_mask(pod.shape)], kind)
            assert (box is not None) == pod.can_hold(kind.topology.shape), kind.name
            if box is None or kind.chip_count == 1:
                continue
            host = host_shape(kind)[: generation.dimensions]
            host = box.shape if kind.is_single_host else host
            hosts = torus.hosts_of(pod.shape, host, box.origin, box.shape)
            assert len(hosts) == kind.host_count
            assert sum(hosts) == box.chips
