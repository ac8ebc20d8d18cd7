"""Torus geometry against its definition."""

import math

from hypothesis import given
from hypothesis import strategies as st

from podyard.hardware import torus

shapes = st.lists(st.integers(1, 6), min_size=2, max_size=3).map(tuple)


@given(shapes)
def test_index_and_coordinate_are_inverse(shape: tuple[int, ...]) -> None:
    listed = list(torus.coordinates(shape))
    assert [torus.index_of(shape, c) for c in listed] == list(range(math.prod(shape)))
    assert [torus.coordinate_of(shape, i) for i in range(math.prod(shape))] == listed


@given(shapes, st.data())
def test_box_mask_holds_exactly_the_chips_of_the_box(
    pod: tuple[int, ...], data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.integers(1, extent)) for extent in pod)
    origin = tuple(data.draw(st.integers(0, extent - 1)) for extent in pod)
    expected = {
        torus.index_of(pod, tuple((o + s) % e for o, s, e in zip(origin, step, pod, strict=True)))
        for step in torus.coordinates(shape)
    }
    assert set(torus.chips_of(torus.box_mask(pod, origin, shape))) == expected
    assert torus.mask_of(expected) == torus.box_mask(pod, origin, shape)


def test_hosts_of_a_slice_partition_it() -> None:
    hosts = torus.hosts_of((16, 16), (2, 2), (14, 0), (4, 8))
    assert len(hosts) == 8
    assert {mask.bit_count() for mask in hosts} == {4}
    assert sum(hosts) == torus.box_mask((16, 16), (14, 0), (4, 8))


def test_rotations_are_distinct_and_start_with_the_shape_itself() -> None:
    assert torus.rotations((4, 4, 8)) == ((4, 4, 8), (4, 8, 4), (8, 4, 4))
    assert torus.rotations((2, 2)) == ((2, 2),)
    assert len(torus.rotations((1, 2, 3))) == 6
