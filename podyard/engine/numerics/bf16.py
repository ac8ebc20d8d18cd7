"""bfloat16 on the bits: the upper half of a float32, rounded to nearest, ties to even.

Source: cloud.google.com/tpu/docs/bfloat16 (round to nearest even, overflow to infinity). Subnormals
round like any other number, and a NaN becomes the quiet NaN of its sign, as ml_dtypes and XLA have
it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_QUIET_NAN_BITS = np.uint16(0x7FC0)
_SIGN_BITS = np.uint16(0x8000)

Float32Array = NDArray[np.float32]


def to_bits(values: Float32Array) -> NDArray[np.uint16]:
    """The bfloat16 bits of float32 `values`, same shape."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Adding 0x7FFF rounds up what is above half; the lowest bit that stays makes a tie go to the
    # even side. The carry may run into the exponent: that is the right next number, and infinity
    # after the largest one.
    lowest_kept = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):  # wraps only for NaNs, which are replaced below
        upper = ((bits + np.uint32(0x7FFF) + lowest_kept) >> np.uint32(16)).astype(np.uint16)
    sign = (bits >> np.uint32(16)).astype(np.uint16) & _SIGN_BITS
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    rounded: NDArray[np.uint16] = np.where(is_nan, sign | _QUIET_NAN_BITS, upper)
    return rounded.reshape(np.shape(values))


def from_bits(bits: NDArray[np.uint16]) -> Float32Array:
    """The float32 numbers that bfloat16 `bits` stand for (exact)."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_to_bf16(values: Float32Array) -> Float32Array:
    """`values` rounded to bfloat16 and widened again to float32."""
    return from_bits(to_bits(values))
