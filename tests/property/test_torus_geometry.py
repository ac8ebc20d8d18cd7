"""Torus geometry against its definition."""

import math
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.hardware import torus
from podyard.hardware.topology import Topology, is_twistable

shapes = st.lists(st.integers(1, 6), min_size=2, max_size=3).map(tuple)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    shape = draw(shapes)
    return Topology(shape, tuple(draw(st.booleans()) for _ in shape))


def hops_by_search(topology: Topology, start: torus.Coordinate) -> dict[torus.Coordinate, int]:
    hops = {start: 0}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        for target in torus.neighbours(topology, at):
            if target not in hops:
                hops[target] = hops[at] + 1
                waiting.append(target)
    return hops


@given(shapes)
def test_index_and_coordinate_are_inverse(shape: tuple[int, ...]) -> None:
    listed = list(torus.coordinates(shape))
    assert [torus.index_of(shape, c) for c in listed] == list(range(math.prod(shape)))
    assert [torus.coordinate_of(shape, i) for i in range(math.prod(shape))] == listed


@given(topologies(), st.data())
def test_distance_is_the_shortest_path(topology: Topology, data: st.DataObject) -> None:
    listed = list(torus.coordinates(topology.shape))
    start = data.draw(st.sampled_from(listed))
    hops = hops_by_search(topology, start)
    assert hops == {c: torus.distance(topology, start, c) for c in listed}


@given(topologies())
def test_neighbours_are_mutual(topology: Topology) -> None:
    for chip in torus.coordinates(topology.shape):
        for other in torus.neighbours(topology, chip):
            assert chip in torus.neighbours(topology, other)


@given(shapes, st.data())
def test_box_mask_holds_exactly_the_chips_of_the_box(pod: tuple[int, ...], data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, extent)) for extent in pod)
    origin = tuple(data.draw(st.integers(0, extent - 1)) for extent in pod)
    expected = {
        torus.index_of(pod, tuple((o + s) % e for o, s, e in zip(origin, step, pod, strict=True)))
        for step in torus.coordinates(shape)
    }
    assert set(torus.chips_of(torus.box_mask(pod, origin, shape))) == expected
    assert torus.mask_of(expected) == torus.box_mask(pod, origin, shape)


@given(topologies(), st.integers(0, 2))
def test_rings_partition_the_chips(topology: Topology, dimension: int) -> None:
    if dimension >= len(topology.shape):
        return
    lines = torus.rings(topology, dimension)
    chips = [chip for line in lines for chip in line]
    assert sorted(chips) == sorted(torus.coordinates(topology.shape))
    assert {len(line) for line in lines} == {topology.shape[dimension]}


@settings(max_examples=20)
@given(st.sampled_from([(4, 4, 8), (4, 8, 8), (4, 8, 4), (8, 4, 8)]))
def test_a_twisted_torus_looks_the_same_from_every_chip_and_is_never_wider(shape: tuple[int, ...]) -> None:
    assert is_twistable(shape)
    plain = Topology(shape, (True, True, True))
    twisted = Topology(shape, (True, True, True), twisted=True)
    spectra = {tuple(sorted(hops_by_search(twisted, c).values())) for c in list(torus.coordinates(shape))[::7]}
    assert len(spectra) == 1
    mean = sum(next(iter(spectra)))
    assert mean < sum(hops_by_search(plain, (0, 0, 0)).values())
    for chip in torus.coordinates(shape):
        assert len(torus.neighbours(twisted, chip)) == 6
    for dimension in range(3):
        lines = torus.rings(twisted, dimension)
        assert sorted(c for line in lines for c in line) == sorted(torus.coordinates(shape))
        for line in lines:
            for a, b in zip(line, (*line[1:], line[0]), strict=True):
                assert torus.distance(twisted, a, b) == 1


def test_hosts_of_a_slice_partition_it() -> None:
    hosts = torus.hosts_of((16, 16), (2, 2), (14, 0), (4, 8))
    assert len(hosts) == 8
    assert {mask.bit_count() for mask in hosts} == {4}
    assert sum(hosts) == torus.box_mask((16, 16), (14, 0), (4, 8))


def test_rotations_are_distinct_and_start_with_the_shape_itself() -> None:
    assert torus.rotations((4, 4, 8)) == ((4, 4, 8), (4, 8, 4), (8, 4, 4))
    assert torus.rotations((2, 2)) == ((2, 2),)
    assert len(torus.rotations((1, 2, 3))) == 6
