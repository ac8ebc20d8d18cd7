"""Places of a slice's devices: in the list that JAX has of them, and on the torus."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from podyard.hardware.accelerator_types import AcceleratorType, host_shape

Shape = tuple[int, ...]


def place_of(kind: AcceleratorType, position: int) -> tuple[int, ...]:
    """(core, x, y, z) of a device in the order in which JAX lists them: by host, x before y before
    z within and among them (as libtpu describes its topologies)."""
    return _place(*_shapes(kind), position)


def list_places(kind: AcceleratorType) -> Mapping[int, int]:
    """Return the place in the list by the number of a device on the torus: x fastest, the cores of
    a chip next to each other (its id in libtpu)."""
    return _list_places(*_shapes(kind))


def _shapes(kind: AcceleratorType) -> tuple[Shape, Shape, int]:
    shape = tuple(kind.topology.shape)
    own = tuple(min(pair) for pair in zip(host_shape(kind), shape, strict=False))
    return shape, own, kind.generation.devices_per_chip


def _place(shape: Shape, host: Shape, per_chip: int, position: int) -> tuple[int, ...]:
    position, core = divmod(position, per_chip)
    inside, outside = list[int](), list[int]()
    for extent in host:
        position, place = divmod(position, extent)
        inside.append(place)
    for extent, step in zip(shape, host, strict=True):
        position, place = divmod(position, max(1, extent // step))
        outside.append(place)
    return (
        core,
        *(far * step + near for far, step, near in zip(outside, host, inside, strict=True)),
    )


@functools.lru_cache(maxsize=8)
def _list_places(shape: Shape, host: Shape, per_chip: int) -> Mapping[int, int]:
    numbers = {}
    for position in range(math.prod(shape) * per_chip):
        core, *coords = _place(shape, host, per_chip, position)
        number = 0
        for extent, coordinate in zip(reversed(shape), reversed(coords), strict=True):
            number = number * extent + coordinate
        numbers[number * per_chip + core] = position
    return numbers
