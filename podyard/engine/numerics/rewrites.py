"""The same numbers from operations that XLA:CPU runs faster.

Max pooling whose windows do not overlap: XLA:CPU finds the gradient with a general window reduction
over tuples of indices and a scatter, one element at a time. Written as comparisons of the places of
a window it vectorizes.
The gradient is equal in every bit, ties and NaN included: `select_and_scatter` walks a window in
row-major order and keeps what it has if `select_prim(kept, next)` holds, so the first of equal
maxima stays, and what follows a NaN replaces it. The maxima are equal in every bit too, with two
exceptions where XLA:CPU's own reduction decides otherwise from program to program: the sign of a
maximum of 0 when the window has both zeros (or subnormals, which compare as 0), and a NaN in a
window, which always gives NaN here, as JAX says, and is lost there by turns.

Convolutions without padding: XLA:CPU copies every patch of the input into one buffer. Beyond 32 MiB
glibc fetches it from the system and gives it back in each call: page faults take more time than the
products (measured: 100 ms, of it 32,000 faults, against 28 ms in pieces). In pieces of the batch,
every sum stays as it is. The gradient of a kernel has few sums, all of them long: its pieces are
added, which changes the last bits (by 5e-6 of the largest element there), so only where order is
free.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

# Half of what glibc keeps at most; a limit of 32 MiB still faulted, 8 MiB was not faster.
_PATCHES_BYTES_MAX = 16 * 2**20

# One operation per place of a window: beyond this the program grows more than it gains.
_PLACES_MAX = 16


def rewrite(name: str, operands: Sequence[Any], params: Mapping[str, Any]) -> Any | None:
    """The result of the JAX primitive `name`, bound to `operands` and `params`, from faster
    operations.

    None where nothing faster is known: overlapping, padded, dilated or very large windows.
    """
    rule = _RULES.get(name)
    if rule is None or not _is_plain_pooling(operands[-1].shape, params):
        return None
    return rule(operands, params)


def _is_plain_pooling(shape: tuple[int, ...], params: Mapping[str, Any]) -> bool:
    window = tuple(params["window_dimensions"])
    dilations = (*params.get("base_dilation", ()), *params.get("window_dilation", ()))
    return (
        window == tuple(params["window_strides"])
        and all(low == high == 0 for low, high in params["padding"])
        and all(dilation == 1 for dilation in dilations)
        and all(width <= size for size, width in zip(shape, window, strict=True))
        and 1 < math.prod(window) <= _PLACES_MAX
    )


def _places(operand: Any, window: tuple[int, ...]) -> list[Any]:
    """For every place of a window, row-major, the elements [size // width per axis] that stand at
    it. What is left
    over at an axis' end belongs to no window."""
    counts = [size // width for size, width in zip(operand.shape, window, strict=True)]
    result = []
    for start in itertools.product(*(range(width) for width in window)):
        limit = [
            first + (count - 1) * width + 1
            for first, count, width in zip(start, counts, window, strict=True)
        ]
        result.append(lax.slice(operand, start, limit, window))
    return result


def _max_pool(operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    (operand,) = operands
    first, *others = _places(operand, tuple(params["window_dimensions"]))
    for other in others:
        first = lax.max(first, other)
    return first


def _max_pool_gradient(operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    source, operand = operands
    window = tuple(params["window_dimensions"])
    kept, *others = _places(operand, window)
    winner = lax.full_like(kept, 0, jnp.int8)
    for place, other in enumerate(others, 1):
        keeps = params["select_prim"].bind(kept, other)
        kept = lax.select(keeps, kept, other)
        winner = lax.select(keeps, winner, lax.full_like(winner, place))

    # Every axis becomes [count, width]; both halves are stretched over it, and the place that won
    # takes the source.
    split = [
        part for count, width in zip(kept.shape, window, strict=True) for part in (count, width)
    ]
    own_axes = tuple(range(0, 2 * kept.ndim, 2))
    here = lax.full((), 0, jnp.int8)
    for axis, width in enumerate(window):
        here = here * jnp.int8(width) + lax.broadcasted_iota(jnp.int8, split, 2 * axis + 1)
    wins = lax.broadcast_in_dim(winner, split, own_axes) == here
    # XLA adds the source to zeros, and its additions flush subnormals: -0 and subnormals arrive as
    # 0.
    source = lax.select(lax.eq(source, lax.full_like(source, 0)), lax.full_like(source, 0), source)
    taken = lax.select(
        wins, lax.broadcast_in_dim(source, split, own_axes), lax.full(split, 0, source.dtype)
    )
    covered = lax.reshape(
        taken, [count * width for count, width in zip(kept.shape, window, strict=True)]
    )
    rest = [(0, size - part, 0) for size, part in zip(operand.shape, covered.shape, strict=True)]
    return lax.pad(covered, jnp.zeros((), source.dtype), rest)


def convolve(left: Any, right: Any, params: Mapping[str, Any], reorder: bool) -> Any:
    """`conv_general_dilated` of two float32 arrays with its own `params`, in pieces where that is
    faster.

    `reorder`: sums may be cut into pieces too, which gives them another order of additions.
    """
    primitive: Any = lax.conv_general_dilated_p
    numbers = params["dimension_numbers"]
    batch, feature = numbers.lhs_spec[:2]
    # A program for batches of any size (an export) is not cut by it.
    if not isinstance(left.shape[batch], int):
        return primitive.bind(left, right, **params)
    result: Any = jax.eval_shape(functools.partial(primitive.bind, **params), left, right)
    sums = math.prod(result.shape[axis] for axis in numbers.out_spec[2:])
    depth = math.prod(right.shape[axis] for axis in numbers.rhs_spec[1:])
    count = -(-4 * left.shape[batch] * sums * depth // _PATCHES_BYTES_MAX)
    if count == 1 or not _is_plain_convolution(params):
        return primitive.bind(left, right, **params)
    # Many short sums: the library cuts none of them, however many there are.
    if left.shape[batch] * sums >= count * depth:
        pieces = [primitive.bind(piece, right, **params) for piece in _cut(left, batch, count)]
        return lax.concatenate(pieces, numbers.out_spec[0])
    if not reorder:
        return primitive.bind(left, right, **params)
    pairs = zip(_cut(left, feature, count), _cut(right, numbers.rhs_spec[1], count), strict=True)
    return functools.reduce(lax.add, [primitive.bind(one, other, **params) for one, other in pairs])


def _is_plain_convolution(params: Mapping[str, Any]) -> bool:
    return (
        all(low == high == 0 for low, high in params["padding"])
        and all(dilation == 1 for dilation in (*params["lhs_dilation"], *params["rhs_dilation"]))
        and params["feature_group_count"] == params["batch_group_count"] == 1
    )


def _cut(array: Any, axis: int, count: int) -> list[Any]:
    """At most `count` pieces along `axis`, all but the last of one size."""
    size = array.shape[axis]
    width = -(-size // count)
    return [
        lax.slice_in_dim(array, start, min(start + width, size), axis=axis)
        for start in range(0, size, width)
    ]


_RULES: dict[str, Callable[[Sequence[Any], Mapping[str, Any]], Any]] = {
    "reduce_window_max": _max_pool,
    "select_and_scatter_add": _max_pool_gradient,
}
