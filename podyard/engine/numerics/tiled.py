"""The matrix unit's bits without its registers: the same additions in the same order, many elements
at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.numerics.bf16 import Float32Array
from podyard.engine.numerics.mxu import Matrix, prepare
from podyard.engine.timing.systolic import Dataflow

# Every sum of this many products of 8-bit integers is a whole number of at most 2^22, and float32
# holds all to 2^24: in whatever order a matrix product in float32 adds them, the result is exact.
INT8_TILE_DEPTH = 256


def tiled_matmul(x: Matrix, w: Matrix, rows: int = 128, dataflow: Dataflow = "ws") -> Matrix:
    """`mxu_matmul(x, w, rows, any number of columns, dataflow).result`, bit for bit (of a NaN: that
    it is one).

    x [m, k], w [k, n], both float32 or both int8; [m, n] in float32 or int32. An element is the sum
    over a tile's depth, one product after another, then over the tiles; a tile is `rows` deep, with
    `os` as deep as the operands. Raises PodyardError INVALID_ARGUMENT as `mxu_matmul` does.
    """
    x, w = prepare(x, w)
    depth = x.shape[1]
    if rows < 1:
        raise invalid(f"an array has at least one row, not {rows}")
    if dataflow not in ("ws", "is", "os"):
        raise invalid(f"dataflow {dataflow!r} is not one of ws, is, os")
    tile_depth = depth if dataflow == "os" else rows
    result = np.zeros((x.shape[0], w.shape[1]), x.dtype)
    product = np.empty_like(result)
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, depth, tile_depth):
            sums = np.zeros_like(result)
            for k in range(first, min(first + tile_depth, depth)):
                np.multiply(x[:, k : k + 1], w[k], out=product)
                sums += product
            result += sums
    return result


def int8_matmul(x: NDArray[np.int8], w: NDArray[np.int8]) -> NDArray[np.int32]:
    """x [m, k] times w [k, n] in int32, exactly, with float32 matrix products of
    INT8_TILE_DEPTH-deep tiles.

    Raises PodyardError INVALID_ARGUMENT for other types and what `mxu_matmul` refuses.
    """
    if x.dtype != np.int8 or w.dtype != np.int8:
        raise invalid(f"8-bit integers are multiplied here, not {x.dtype} by {w.dtype}")
    wide_x, wide_w = (operand.astype(np.float32) for operand in prepare(x, w))
    result = np.zeros((x.shape[0], w.shape[1]), np.int32)
    for first in range(0, x.shape[1], INT8_TILE_DEPTH):
        tile = slice(first, first + INT8_TILE_DEPTH)
        result += (wide_x[:, tile] @ wide_w[tile]).astype(np.int32)
    return result


def reference_matmul(x: Float32Array, w: Float32Array) -> Float32Array:
    """x [m, k] times w [k, n]: both rounded to bfloat16, then one float32 matrix product, which
    adds as it likes.

    What `mxu_jit` makes of `x @ w` at default precision, without JAX. Raises PodyardError
    INVALID_ARGUMENT as `mxu_matmul` does, and for integers.
    """
    if x.dtype != np.float32 or w.dtype != np.float32:
        raise invalid(f"float32 is multiplied here, not {x.dtype} by {w.dtype}")
    rounded_x, rounded_w = prepare(x, w)
    with np.errstate(invalid="ignore", over="ignore"):
        product: Float32Array = np.matmul(rounded_x, rounded_w)
    return product
