"""The bytes of an array in the memory of a TPU: tiles of 8 sublanes x 128 lanes, and the padding
that fills them.

The compiler chooses for arguments and results the pair of minor axes that pads least; learned from
and equal on the layouts of several hundred arrays, on every generation.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from podyard.hardware.cost_model import Tiling

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
def compact_layout_of(shape: tuple[int, ...], itemsize: float, tiling: Tiling) -> Layout:
    """The layout with the least padding; of equals the one with the highest lane axis, then sublane
    axis."""
    if len(shape) < 2:
        return Layout(0 if shape else None, None, _vector_bytes(math.prod(shape), itemsize, tiling))
    axes = range(len(shape) - 1, -1, -1)
    pairs = ((lane, sublane) for lane in axes for sublane in axes if lane != sublane)
    lane, sublane = min(
        pairs, key=lambda pair: padded_bytes_of(shape, itemsize, pair[0], pair[1], tiling)
    )
    return Layout(lane, sublane, padded_bytes_of(shape, itemsize, lane, sublane, tiling))


def padded_bytes_of(
    shape: tuple[int, ...], itemsize: float, lane_axis: int, sublane_axis: int, tiling: Tiling
) -> int:
    """Bytes of an array of two axes or more with the given minor axes."""
    rows = tiling.sublanes(shape[sublane_axis], itemsize)
    padded = round_up(shape[lane_axis], LANES) * round_up(shape[sublane_axis], rows)
    major = math.prod(
        extent for axis, extent in enumerate(shape) if axis not in (lane_axis, sublane_axis)
    )
    return math.ceil(padded * major * itemsize)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _vector_bytes(size: int, itemsize: float, tiling: Tiling) -> int:
    if itemsize == 0:
        return 0
    chunk = tiling.min_sublanes * LANES * max(1, int(4 // itemsize))
    while chunk < min(size, _MAX_VECTOR_WORDS):
        chunk *= 2
    return math.ceil(round_up(max(size, 1), chunk) * itemsize)
