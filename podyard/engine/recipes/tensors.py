"""Sources of numbers: what parameters start as, and random examples. Numpy only, from named
streams."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.rng import Streams

# A tensor is drawn in pieces: a stream gives at most 2^28 bytes at once. Even, because of
# `normal`'s pairs.
_PIECE = 1 << 22

# Shape -> the rule that makes values of uniform numbers in [0, 1), piece by piece.
Start = Callable[[tuple[int, ...]], Callable[[NDArray[np.float64]], NDArray[np.float64]]]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A float32 tensor of a model's state and what it is before the first step."""

    shape: tuple[int, ...]
    start: Start


@dataclasses.dataclass(frozen=True)
class Feature:
    """One input of a model: the shape of one example, and how uniform numbers in [0, 1) become
    random examples."""

    shape: tuple[int, ...]
    dtype: Any
    values: Callable[[NDArray[np.float64]], NDArray[np.float64]]


def draw(
    streams: Streams,
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    values: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[Any]:
    """`values` of the stream's next uniform numbers, as an array [*shape] of `dtype`."""
    rng = streams.stream(name)
    result = np.empty(math.prod(shape), dtype)
    for start in range(0, result.size, _PIECE):
        count = min(_PIECE, result.size - start)
        words = np.frombuffer(rng.randbytes(4 * (count + count % 2)), "<u4")
        result[start : start + count] = values(words / 2.0**32)[:count].astype(dtype)
    return result.reshape(shape)


def init_tensor(streams: Streams, name: str, tensor: Tensor) -> NDArray[np.float32]:
    """Each tensor has a random stream with its name, so that another layer does not change the
    others."""
    return draw(streams, f"init/{name}", tensor.shape, np.float32, tensor.start(tensor.shape))


def constant(value: float) -> Start:
    return lambda _shape: lambda unit: np.full(unit.shape, value)


def normal(deviation: float) -> Start:
    """Mean 0. Source: Box and Muller, Annals of Mathematical Statistics 29 (1958), 610."""

    def values(unit: NDArray[np.float64]) -> NDArray[np.float64]:
        half = len(unit) // 2
        radius = deviation * np.sqrt(-2 * np.log(1 - unit[:half]))
        angle = 2 * np.pi * unit[half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])

    return lambda _shape: values


def glorot_uniform(shape: tuple[int, ...]) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """For kernels [..., in, out]; Keras' default. Source: Glorot and Bengio, AISTATS 2010, equation
    16."""
    limit = math.sqrt(6 / (math.prod(shape[:-2]) * (shape[-2] + shape[-1])))
    return lambda unit: (2 * unit - 1) * limit


def he_normal(shape: tuple[int, ...]) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """For kernels [h, w, in, out] before relu, by what goes out. Source: He et al., arXiv
    1502.01852, section 2.2."""
    return normal(math.sqrt(2 / (shape[0] * shape[1] * shape[3])))(shape)


zeros = constant(0.0)
ones = constant(1.0)


def pixels(shape: tuple[int, ...], dtype: Any = np.float32, offset: float = 0.0) -> Feature:
    """Bytes / 255 + `offset`."""
    return Feature(shape, dtype, lambda unit: np.floor(unit * 256) / 255 + offset)


def numbers_below(count: int, shape: tuple[int, ...] = ()) -> Feature:
    """Labels or tokens: int32 in 0..count - 1."""
    return Feature(shape, np.int32, lambda unit: np.floor(unit * count))
