"""Images of few features that are converted before they are copied for a convolution."""

from __future__ import annotations

import dataclasses
import math

from podyard.engine.program.ir import Program
from podyard.engine.timing.kernels import (
    KernelPrice,
    single_price,
    tile_bytes,
    tiles_of,
    vector_price,
)
from podyard.engine.timing.layout import LANES
from podyard.hardware.cost_model import SUBLANES, CostModel

# Images of so few features are converted by a kernel of their own before they are copied (26
# compiled patch embeddings of v5e, 9 of v6e); the copy takes this for each window.
_FEW_FEATURES, _MOVED_WINDOW_CYCLES = 4, 100
# What is converted comes as a whole if it is, in 4 bytes, at most a quarter of the room that a
# kernel has for itself: that of the chip without what copies may take. (16 compiled conversions of
# 960 to 1536 tiles on v5e, 1152 to 3072 on v6e.)
_CHIP_BYTES, _PARTS_OF_ROOM = 2**27, 4


def converted_images_price(
    program: Program, copied: int | None, minor: tuple[int, ...], costs: CostModel
) -> KernelPrice | None:
    """Return where images of few features are converted before they are copied with examples in
    lanes: a kernel that converts them, and one that moves what is on the chip then, 8 rows of 128
    numbers at a time. Else None."""
    made = None if copied is None else program.producer(copied)
    if copied is None or made is None or made.opcode != "convert":
        return None
    given, type_ = program.types[made.operands[0]], program.types[copied]
    places = [extent for axis, extent in enumerate(type_.shape) if axis not in minor]
    is_few = len(places) == 2 and type_.shape[minor[1]] <= _FEW_FEATURES
    is_seen = costs.converts_images or (
        costs.converts_patches and _is_cut_into_patches(program, copied)
    )
    if not is_seen or given.itemsize <= type_.itemsize or not is_few:
        return None
    tiles = tiles_of(given, costs)
    wide = tiles * LANES * SUBLANES * 4
    moved, is_cut = (
        tile_bytes(given, costs) + wide,
        wide > (_CHIP_BYTES - costs.prefetch_bytes) / _PARTS_OF_ROOM,
    )
    converted = (
        single_price(moved, tiles, costs) if is_cut else vector_price(moved, 0.0, 0.0, costs)
    )
    windows = math.ceil(places[0] / SUBLANES) * math.ceil(places[1] / LANES)
    return dataclasses.replace(converted, cycles=converted.cycles + windows * _MOVED_WINDOW_CYCLES)


def _is_cut_into_patches(program: Program, images: int) -> bool:
    """Return whether a convolution reads images in windows that lie next to each other."""
    for one in program.body.operations:
        if one.opcode == "convolution" and one.operands[0] == images:
            kernel, axes = program.types[one.operands[1]].shape, one.ints("kernel_dims")[2:]
            if one.ints("strides") == tuple(kernel[axis] for axis in axes):
                return True
    return False
