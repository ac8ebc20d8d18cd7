"""Where arrays lie in memory: tiles of 8 sublanes x 128 lanes, the two axes that get them, and what
padding costs.

The compiler chooses for arguments and results the pair of minor axes that pads least; learned from
and equal on the layouts of several hundred arrays, on every generation.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable

from podyard.engine.program.ir import DTYPE_BYTES, TensorType
from podyard.hardware.cost_model import SUBLANES, Tiling

LANES = 128
# A vector of one axis lies in chunks of a power of two words, up to this many words.
_MAX_VECTOR_WORDS = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The axes in lanes and in sublanes (None where the array has no such axis) and the bytes with
    padding."""

    lane_axis: int | None
    sublane_axis: int | None
    nbytes: int


@functools.lru_cache(maxsize=65536)
def compact_layout(type_: TensorType, tiling: Tiling) -> Layout:
    """The layout with the least padding; of equals the one with the highest lane axis, then sublane
    axis."""
    shape, itemsize = type_.shape, DTYPE_BYTES[type_.dtype]
    if len(shape) < 2:
        return Layout(0 if shape else None, None, _vector_bytes(type_.size, itemsize, tiling))
    axes = range(len(shape) - 1, -1, -1)
    pairs = ((lane, sublane) for lane in axes for sublane in axes if lane != sublane)
    lane, sublane = min(pairs, key=lambda pair: padded_bytes(type_, pair[0], pair[1], tiling))
    return Layout(lane, sublane, padded_bytes(type_, lane, sublane, tiling))


def padded_bytes(type_: TensorType, lane_axis: int, sublane_axis: int, tiling: Tiling) -> int:
    """Bytes of an array of two axes or more with the given minor axes."""
    shape, itemsize = type_.shape, DTYPE_BYTES[type_.dtype]
    rows = tiling.sublanes(shape[sublane_axis], itemsize)
    padded = _round_up(shape[lane_axis], LANES) * _round_up(shape[sublane_axis], rows)
    major = math.prod(
        extent for axis, extent in enumerate(shape) if axis not in (lane_axis, sublane_axis)
    )
    return math.ceil(padded * major * itemsize)


def nbytes_in_memory(type_: TensorType, tiling: Tiling) -> int:
    """Bytes of an argument or a result."""
    return compact_layout(type_, tiling).nbytes


def whole_rows(types: Iterable[TensorType], tiling: Tiling) -> float:
    """Numbers that the vector unit works on for each number of the largest array: it always takes 8
    rows at once."""
    type_ = max(types, key=lambda one: one.size)
    axis = compact_layout(type_, tiling).sublane_axis
    return 1.0 if axis is None else _round_up(type_.shape[axis], SUBLANES) / type_.shape[axis]


def whole_lanes(extent: int) -> int:
    """As many numbers as the tiles have in a row that hold these."""
    return _round_up(extent, LANES)


def _vector_bytes(size: int, itemsize: float, tiling: Tiling) -> int:
    if itemsize == 0:
        return 0
    chunk = tiling.min_sublanes * LANES * max(1, int(4 // itemsize))
    while chunk < min(size, _MAX_VECTOR_WORDS):
        chunk *= 2
    return math.ceil(_round_up(max(size, 1), chunk) * itemsize)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def in_whole_tiles(type_: TensorType) -> TensorType:
    """The type with its axes in an order in which the last two fill whole tiles, if there is
    one."""
    shape = type_.shape
    for lane in sorted(range(len(shape)), reverse=True):
        rows = [axis for axis in range(len(shape)) if axis != lane and shape[axis] % SUBLANES == 0]
        if shape[lane] % LANES == 0 and rows:
            major = [extent for axis, extent in enumerate(shape) if axis not in (lane, rows[-1])]
            return TensorType((*major, shape[rows[-1]], shape[lane]), type_.dtype)
    return type_
