"""The search against brute force, and what no plan may break."""

from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.clock import PlatformTime
from podyard.base.rng import Streams
from podyard.domain.fleet import FleetSnapshot, PlacementRequest, Pod, load_fleet
from podyard.domain.node import UsageClass
from podyard.domain.slice import SliceRecord, assert_no_overlap
from podyard.hardware import torus
from podyard.hardware.accelerator_types import AcceleratorType, all_types, host_shape
from podyard.hardware.generations import GENERATIONS
from podyard.scheduler.cycle import decide
from podyard.scheduler.placement import allowed_origins, find_box, free_origins, orientations

FLEET = load_fleet(
    """
zones:
  us-central1-a: {v2: {shape: 8x8, pods: 2}, v5e: {shape: 4x8}}
  us-central2-b: {v4: {shape: 8x4x8}}
"""
)
KINDS = [(zone, kind) for zone in FLEET.zones for kind in FLEET.offered_types(zone)]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=3).map(tuple), st.data())
def test_free_origins_are_exactly_those_of_brute_force(pod: tuple[int, ...], data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, extent)) for extent in pod)
    free = data.draw(st.integers(0, torus.full_mask(pod)))
    expected = 0
    for index, origin in enumerate(torus.coordinates(pod)):
        box = torus.box_mask(pod, origin, shape)
        if box & free == box:
            expected |= 1 << index
    assert free_origins(pod, free, shape) == expected


@given(st.sampled_from(KINDS), st.data())
def test_a_box_is_found_exactly_when_one_is_free(case: tuple[str, AcceleratorType], data: st.DataObject) -> None:
    zone, kind = case
    pods = FLEET.zone(zone).offers[kind.generation.name].pods
    # Whole hosts taken or free, as slices leave them.
    free = [_random_hosts(pod, data) for pod in pods]
    box = find_box(pods, free, kind)
    possible = any(
        mask & torus.box_mask(pod.shape, origin, shape) == torus.box_mask(pod.shape, origin, shape)
        for pod, mask in zip(pods, free, strict=True)
        for shape in orientations(kind.topology.shape, pod.shape)
        for origin in torus.coordinates(pod.shape)
        if allowed_origins(pod.shape, shape) >> torus.index_of(pod.shape, origin) & 1
    )
    assert (box is not None) == possible
    if box is not None:
        index = [pod.pod_id for pod in pods].index(box.pod_id)
        assert box.chips & free[index] == box.chips
        assert box.chips.bit_count() == kind.chip_count
        assert sorted(box.shape) == sorted(kind.topology.shape)


def _random_hosts(pod: Pod, data: st.DataObject) -> int:
    host = (2, 2, 1)[: len(pod.shape)]
    blocks = torus.hosts_of(pod.shape, host, (0,) * len(pod.shape), pod.shape)
    chosen = data.draw(st.integers(0, (1 << len(blocks)) - 1))
    return sum(block for index, block in enumerate(blocks) if chosen >> index & 1)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 5)), max_size=40),
    st.lists(st.integers(0, 63), max_size=3),
)
def test_plans_hold_their_invariants(
    wanted: list[tuple[tuple[str, AcceleratorType], int, int]], broken: list[int]
) -> None:
    waiting = [
        PlacementRequest(f"n{i}", i, "demo", zone, kind, UsageClass.SPOT, priority, PlatformTime(age))
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
        assert place.chips.bit_count() == request.accelerator_type.chip_count
        assert place.chips == torus.box_mask(pod.shape, place.origin, place.shape)
        assert not place.chips & broken_chips.get(place.pod_id, 0)
    assert_no_overlap([SliceRecord(p.node_key, p.node_key, p.pod_id, p.chips) for p in plan.places])
    assert all(wait.reason and wait.message for wait in plan.waits)


def test_every_type_fits_an_empty_full_pod_or_is_larger_than_it_and_keeps_its_hosts_whole() -> None:
    for generation in GENERATIONS.values():
        pod = Pod("p", "us-central1-a", generation, generation.pod_shape)
        for kind in all_types(generation):
            turned = orientations(kind.topology.shape, pod.shape)
            box = find_box([pod], [torus.full_mask(pod.shape)], kind)
            assert (box is not None) == bool(turned), kind.name
            if box is None or kind.chip_count == 1:
                continue
            host = host_shape(kind)[: generation.dimensions]
            host = box.shape if kind.is_single_host else host
            hosts = torus.hosts_of(pod.shape, host, box.origin, box.shape)
            assert len(hosts) == kind.host_count
            assert sum(hosts) == box.chips
