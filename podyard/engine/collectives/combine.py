"""Sums of two vectors: sum, mean and maximum of float32, bfloat16 and whole numbers, on any
transport alike.

bfloat16 is added in float32 and rounded after every addition, so that what is sent has the size of
what was given. A mean is a sum that is divided once, at the end. A NaN stays one in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import invalid
from podyard.engine.numerics import bf16

Array = NDArray[Any]
# f(received, own, out): `out` may be either of them.
Combine = Callable[[Array, Array, Array], object]

_BFLOAT16 = "bfloat16"
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class Reduction(StrEnum):
    SUM = "sum"
    MEAN = "mean"
    MAX = "max"


def combiner(reduction: Reduction, dtype: np.dtype[Any]) -> Combine:
    """Raises PodyardError INVALID_ARGUMENT for an element type that is not summed, and for a mean
    of whole numbers."""
    if dtype.name not in ("float32", _BFLOAT16, *_WHOLE):
        raise invalid(
            f"{dtype.name} is not reduced; float32, bfloat16 and whole numbers are", "dtype"
        )
    if reduction is Reduction.MEAN and dtype.name in _WHOLE:
        raise invalid(f"the mean of {dtype.name} is no {dtype.name}", "reduction")
    if dtype.name == _BFLOAT16:
        return _maximum_bf16 if reduction is Reduction.MAX else _add_bf16
    return _maximum if reduction is Reduction.MAX else np.add


def finish(reduction: Reduction, vector: Array, rank_count: int) -> None:
    """Do what remains when all have been combined, in place."""
    if reduction is not Reduction.MEAN:
        return
    if vector.dtype.name == _BFLOAT16:
        wide = bf16.from_bits(vector.view(np.uint16)) / np.float32(rank_count)
        vector.view(np.uint16)[...] = bf16.to_bits(wide)
    else:
        np.divide(vector, np.float32(rank_count), out=vector)


def _maximum(received: Array, own: Array, out: Array) -> None:
    np.maximum(received, own, out=out)


def _add_bf16(received: Array, own: Array, out: Array) -> None:
    _with_float32(np.add, received, own, out)


def _maximum_bf16(received: Array, own: Array, out: Array) -> None:
    _with_float32(np.maximum, received, own, out)


def _with_float32(
    ufunc: Callable[[Array, Array], Array], received: Array, own: Array, out: Array
) -> None:
    wide = ufunc(bf16.from_bits(received.view(np.uint16)), bf16.from_bits(own.view(np.uint16)))
    out.view(np.uint16)[...] = bf16.to_bits(wide)
