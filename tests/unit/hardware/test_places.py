"""Places of devices in JAX's list, and on the torus."""

from __future__ import annotations

import pytest

from podyard.hardware.accelerator_types import parse
from podyard.hardware.places import list_places, place_of
from podyard.programs.records import order_line, order_of_text


@pytest.mark.parametrize("name", ["v3-32", "v4-8", "v5p-512", "v5litepod-256", "v6e-8"])
def test_numbers_and_places_are_one_another_s(name: str) -> None:
    kind = parse(name)
    places = list_places(kind)
    assert sorted(places) == sorted(places.values()) == list(range(kind.device_count))


def test_the_second_host_has_the_next_chips_of_its_row() -> None:
    kind = parse("v5litepod-256")
    assert [place_of(kind, position)[1:] for position in range(5)] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (2, 0),
    ]  # fmt: skip
    places = list_places(kind)
    assert [places[number] for number in (0, 1, 2, 16)] == [0, 1, 4, 2]


def test_an_order_is_written_where_it_is_another() -> None:
    assert order_line([0, 1, 2, 3]) == b""
    assert order_line([4, 5]) == b""  # not all of a slice
    line = order_line([0, 2, 1, 3])
    assert order_of_text(line + b"module @jit_step {") == (0, 2, 1, 3)
    assert order_of_text(b"// slice: v5e:2x2\n" + line + b"module") == (0, 2, 1, 3)
    assert order_of_text(b"module @jit_step {") == ()
    assert order_of_text(b"// podyard devices: 0,7\nmodule") == ()
