"""Bytes and FLOPs of what a Pallas kernel works on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

LANES, SUBLANES, WORD_BYTES = 128, 8, 4


def product_flops(equation: Any) -> tuple[float, float]:
    """Multiply-adds as two; and with whole lanes along the contracted axis and the right operand's
    own."""
    (contracted, other), (batch, _) = equation.params["dimension_numbers"]
    left, right = (atom.aval.shape for atom in equation.invars[:2])
    deep = math.prod(left[axis] for axis in contracted)
    wide = math.prod(right) // max(
        1, math.prod(right[axis] for axis in other) * math.prod(left[axis] for axis in batch)
    )
    rest = math.prod(left) // max(1, deep)
    return 2.0 * rest * deep * wide, 2.0 * rest * _whole(deep, LANES) * _whole(wide, LANES)


def copied_bytes(equation: Any) -> float:
    """Of an asynchronous copy: the smaller of the two ends, which are whole references or parts of
    them."""
    sizes = [
        _nbytes(atom.aval)
        for atom in equation.invars
        if space_of(atom.aval) != "semaphore" and size_of(atom) > 1
    ]
    tree = equation.params.get("tree")
    return min([*sizes, *_parts(tree, equation)], default=0.0)


def _parts(tree: Any, equation: Any) -> Iterable[float]:
    """Bytes of the ends of a copy after the indices that they have."""
    try:
        for end in tree.unflatten(equation.invars)[:4]:
            transforms = end if isinstance(end, tuple) else ()
            for one in transforms:
                if hasattr(one, "get_indexer_shape"):
                    yield float(math.prod(one.get_indexer_shape())) * WORD_BYTES
    except (AttributeError, TypeError, ValueError):
        return


def vmem_bytes(aval: Any) -> float:
    if space_of(aval) not in ("vmem", "default", "none"):
        return 0.0
    return padded_bytes(list(aval.shape), itemsize_of(aval))


def padded_bytes(shape: Sequence[int], itemsize: float) -> float:
    """As it lies in VMEM: whole tiles of 8 x 128 words, narrower types packed."""
    if not shape:
        return 0.0
    rows = SUBLANES * max(1, round(WORD_BYTES / itemsize))
    *outer, high, low = (1, *shape) if len(shape) == 1 else shape
    return float(math.prod(outer)) * _whole(high, rows) * _whole(low, LANES) * itemsize


def _whole(extent: int, tile: int) -> int:
    return -(-extent // tile) * tile


def space_of(aval: Any) -> str:
    """Name of a memory space: `vmem`, `default`, `any`, `hbm`, `smem`, `semaphore`, `none`."""
    space = getattr(aval, "memory_space", None)
    return str(getattr(space, "value", space)).lower().removesuffix("_mem")


def size_of(atom: Any) -> int:
    shape = getattr(atom.aval, "shape", ())
    return math.prod(one for one in shape if isinstance(one, int))


def _nbytes(aval: Any) -> float:
    return float(math.prod(aval.shape)) * itemsize_of(aval)


def itemsize_of(aval: Any) -> float:
    try:
        dtype = np.dtype(aval.dtype)
    except TypeError:  # semaphores, keys
        return float(WORD_BYTES)
    return 0.5 if dtype.name in ("int4", "uint4") else float(dtype.itemsize)


def is_float(equation: Any) -> bool:
    dtype = getattr(equation.outvars[0].aval, "dtype", None)
    return dtype is not None and np.dtype(dtype).kind not in "biu"
