from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from numpy.typing import NDArray

from podyard.engine.numerics.bf16 import from_bits, round_to_bf16, to_bits

SPECIAL_BITS = [
    # zero, subnormal
    0x00000000, 0x80000000, 0x00000001, 0x00008000, 0x00018000, 0x00007FFF, 0x007FFFFF, 0x80008001,
    0x3F800000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001,  # ties both ways around 1
    0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0xFF7FFFFF,  # the largest: to infinity or not
    0x7F800000, 0xFF800000,
]  # fmt: skip
NAN_BITS = [0x7F800001, 0xFF812345, 0x7FFFFFFF, 0xFFC00000, 0x7FC00000]
# Around what decides: nothing, a bit, just under half, half, just over, all.
LOWER_HALVES = [0x0000, 0x0001, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFE, 0xFFFF]


def floats(bits: list[int]) -> NDArray[np.float32]:
    return np.array(bits, np.uint32).view(np.float32)


def random_bits(count: int) -> NDArray[np.float32]:
    """Finite numbers and infinities of all exponents."""
    bits = np.random.default_rng(0).integers(0, 2**32, count, dtype=np.uint32)
    values = bits.view(np.float32)
    return values[~np.isnan(values)]


@pytest.mark.parametrize(
    "values", [floats(SPECIAL_BITS), random_bits(200_000)], ids=["special", "random"]
)
def test_equals_ml_dtypes_and_xla_on_the_bits(values: NDArray[np.float32]) -> None:
    with np.errstate(over="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(to_bits(values), expected)
    xla = np.asarray(lax.reduce_precision(values, exponent_bits=8, mantissa_bits=7))
    assert np.array_equal(round_to_bf16(values).view(np.uint32), xla.view(np.uint32))


@pytest.mark.parametrize("lower", LOWER_HALVES, ids=hex)
def test_all_upper_halves_round_as_ml_dtypes_rounds(lower: int) -> None:
    values = ((np.arange(2**16, dtype=np.uint32) << np.uint32(16)) | np.uint32(lower)).view(
        np.float32
    )
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(to_bits(values), expected)


def test_a_tie_goes_to_the_even_side_and_the_largest_numbers_to_infinity() -> None:
    assert to_bits(floats([0x3F808000, 0x3F818000])).tolist() == [0x3F80, 0x3F82]
    assert to_bits(floats([0x7F7F7FFF, 0x7F7F8000, 0xFF7F8000])).tolist() == [
        0x7F7F,
        0x7F80,
        0xFF80,
    ]
    assert to_bits(floats([0x00008000, 0x00008001, 0x00018000])).tolist() == [0, 1, 2]


def test_nan_stays_a_quiet_nan_of_its_sign() -> None:
    assert to_bits(floats(NAN_BITS)).tolist() == [0x7FC0, 0xFFC0, 0x7FC0, 0xFFC0, 0x7FC0]


def test_shape_is_kept_and_rounding_twice_changes_nothing() -> None:
    values = random_bits(4096)[:3000].reshape(10, 30, 10)[:, ::3, :]
    once = round_to_bf16(values)
    assert once.shape == values.shape
    assert np.array_equal(round_to_bf16(once).view(np.uint32), once.view(np.uint32))
    assert round_to_bf16(np.array(1.00390625, np.float32)).shape == ()


def test_from_bits_is_exact_for_all_numbers() -> None:
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    expected = np.asarray(jnp.asarray(bits.view(ml_dtypes.bfloat16)).astype(jnp.float32))
    got = from_bits(bits)
    finite = ~np.isnan(got)
    assert np.array_equal(got[finite].view(np.uint32), expected[finite].view(np.uint32))
    assert np.array_equal(finite, ~np.isnan(expected))
    assert jax.default_backend() == "cpu"
