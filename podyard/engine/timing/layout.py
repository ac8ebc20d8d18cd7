"""Layouts of arrays in memory, by the types of a program: the two axes that get tiles, and the cost
of padding."""

from __future__ import annotations

from collections.abc import Iterable

from podyard.engine.program.ir import DTYPE_BYTES, TensorType
from podyard.hardware.cost_model import SUBLANES, Tiling
from podyard.hardware.layout import LANES as LANES
from podyard.hardware.layout import Layout, compact_layout_of, padded_bytes_of, round_up


def compact_layout(type_: TensorType, tiling: Tiling) -> Layout:
    """The layout with the least padding; of equals the one with the highest lane axis, then sublane
    axis."""
    return compact_layout_of(type_.shape, DTYPE_BYTES[type_.dtype], tiling)


def padded_bytes(type_: TensorType, lane_axis: int, sublane_axis: int, tiling: Tiling) -> int:
    """Bytes of an array of two axes or more with the given minor axes."""
    return padded_bytes_of(type_.shape, DTYPE_BYTES[type_.dtype], lane_axis, sublane_axis, tiling)


def nbytes_in_memory(type_: TensorType, tiling: Tiling) -> int:
    """Bytes of an argument or a result."""
    return compact_layout(type_, tiling).nbytes


def whole_rows(types: Iterable[TensorType], tiling: Tiling) -> float:
    """Numbers that the vector unit works on for each number of the largest array: it always takes 8
    rows at once."""
    type_ = max(types, key=lambda one: one.size)
    axis = compact_layout(type_, tiling).sublane_axis
    return 1.0 if axis is None else round_up(type_.shape[axis], SUBLANES) / type_.shape[axis]


def whole_lanes(extent: int) -> int:
    """As many numbers as the tiles have in a row that hold these."""
    return round_up(extent, LANES)


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
