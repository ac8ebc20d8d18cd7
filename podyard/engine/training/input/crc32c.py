"""CRC-32C (Castagnoli), as TFRecord uses it: RFC 3720, appendix B.4.

The remainder is linear in the bits, so all tables come from one operator: what a state becomes
after a zero byte. A piece of data that begins with zeros has the remainder of the rest (from state
0), so records of any length can be cut into lanes of one length, filled up in front; numpy runs all
lanes of all records side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Reflected polynomial.
_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
# Long enough that joining lanes costs little, short enough that filling up does.
_LANE_BYTES = 128
# Lanes at once: their states, indices and table entries stay in the second-level cache.
_LANES_MAX = 16384
# Below, a loop over bytes is faster than numpy's calls.
_SHORT_BYTES = 8192

Words = NDArray[np.uint32]


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of `data`."""
    if len(data) > _SHORT_BYTES:
        return int(crc32c_many(data, [0], [len(data)])[0])
    table = _byte_table()
    state = _ONES
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ _ONES


def crc32c_many(data: bytes | memoryview, starts: Sequence[int], lengths: Sequence[int]) -> Words:
    """The checksums [n] of the parts data[start : start + length]."""
    sizes = np.asarray(lengths, np.int64)
    # A part without bytes is one lane of filling.
    lane_counts = np.maximum(-(-sizes // _LANE_BYTES), 1)
    ends = np.cumsum(lane_counts)
    filled = bytearray(int(ends[-1]) * _LANE_BYTES)
    for start, length, end in zip(starts, lengths, (ends * _LANE_BYTES).tolist(), strict=True):
        filled[end - length : end] = data[start : start + length]
    words = np.frombuffer(filled, "<u4").reshape(-1, _LANE_BYTES // 4)
    states = np.concatenate(
        [_remainders(words[at : at + _LANES_MAX]) for at in range(0, len(words), _LANES_MAX)]
    )
    lanes_after = np.repeat(ends, lane_counts) - 1 - np.arange(len(words))
    joined = np.bitwise_xor.reduceat(
        _after_zeros(states, lanes_after * _LANE_BYTES), ends - lane_counts
    )
    return joined ^ _after_zeros(np.full(len(sizes), _ONES, np.uint32), sizes) ^ np.uint32(_ONES)


def mask(crc: int) -> int:
    """TFRecord keeps checksums rotated and shifted, because a checksum of data with its own
    checksum means little."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ONES


def masked_many(crcs: Words) -> Words:
    """`masked` of each."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(_MASK_DELTA)


def _remainders(words: Words) -> Words:
    """[lanes, words] -> states [lanes], each lane from state 0."""
    low, high = _word_tables()
    state = np.zeros(len(words), np.uint32)
    for column in np.ascontiguousarray(words.T):
        state ^= column
        state = low[state & np.uint32(0xFFFF)] ^ high[state >> np.uint32(16)]
    return state


def _after_zeros(states: Words, counts: NDArray[np.int64]) -> Words:
    """Return what each state [n] becomes after counts [n] zero bytes."""
    result = states.copy()
    for bit in range(int(counts.max(initial=0)).bit_length()):
        chosen = np.flatnonzero(counts >> bit & 1)
        result[chosen] = _apply(_zeros_operator(bit), result[chosen])
    return result


def _apply(operator: tuple[int, ...], states: Words) -> Words:
    """A linear operator, given by the images of the 32 bits."""
    result = np.zeros_like(states)
    for bit, image in enumerate(operator):
        result ^= (states >> np.uint32(bit) & np.uint32(1)) * np.uint32(image)
    return result


@functools.cache
def _zeros_operator(doublings: int) -> tuple[int, ...]:
    """After 2 ** doublings zero bytes: the images of the 32 bits of a state."""
    if doublings:
        half = _zeros_operator(doublings - 1)
        return tuple(_apply(half, np.array(half, np.uint32)).tolist())

    def after_byte(state: int) -> int:
        for _ in range(8):
            state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
        return state

    return tuple(after_byte(1 << bit) for bit in range(32))


@functools.cache
def _byte_table() -> tuple[int, ...]:
    return tuple(_apply(_zeros_operator(0), np.arange(256, dtype=np.uint32)).tolist())


@functools.cache
def _word_tables() -> tuple[Any, Any]:
    """Return what the halves of a state become after four zero bytes, [65536] each."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _apply(_zeros_operator(2), halves), _apply(_zeros_operator(2), halves << np.uint32(16))
