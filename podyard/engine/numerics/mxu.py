"""The matrix unit, register by register: the specification that the fast path is held to.

A weight-stationary array of `rows` x `columns` cells. Weights [k, n] are shifted in from the top, one row per cycle.
Activations [m, k] enter at the left edge, row k of the array one cycle after row k-1 (the skew); partial sums run
downwards and leave at the bottom edge, column n one cycle after column n-1. Each cell multiplies two bfloat16 numbers
(the product is exact in float32) and adds in float32. Depths beyond `rows` are cut into tiles whose results are added
in float32 outside of the array, as the vector unit does (reference: vpop.f32 and an add across 128-deep tiles).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from podyard.base.errors import invalid
from podyard.engine.numerics.bf16 import Float32Array, round_to_bf16


@dataclasses.dataclass(frozen=True, slots=True)
class MxuRun:
    """`result` [m, n] in float32; `cycles` counts loading, streaming and draining of every tile, one after another."""

    result: Float32Array
    cycles: int


class SystolicArray:
    """The registers of one array, advanced one cycle at a time."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows = rows
        self.columns = columns
        self.cycles = 0
        self._weights = np.zeros((rows, columns), np.float32)
        self._activations = np.zeros((rows, columns), np.float32)
        self._partial_sums = np.zeros((rows, columns), np.float32)

    def load_weights(self, tile: Float32Array) -> None:
        """Shifts `tile` [rows, columns], bfloat16 numbers, in from the top: its last row enters first."""
        for row in reversed(tile):
            self._weights[1:] = self._weights[:-1].copy()
            self._weights[0] = row
            self.cycles += 1

    def tick(self, left_edge: Float32Array) -> Float32Array:
        """One cycle: `left_edge` [rows] enters, the partial sums [columns] at the bottom edge leave."""
        entering = np.empty_like(self._activations)
        entering[:, 0] = left_edge
        entering[:, 1:] = self._activations[:, :-1]
        from_above = np.zeros_like(self._partial_sums)
        from_above[1:] = self._partial_sums[:-1]
        self._activations = entering
        self._partial_sums = from_above + entering * self._weights
        self.cycles += 1
        bottom: Float32Array = self._partial_sums[-1]
        return bottom

    def stream(self, activations: Float32Array) -> Float32Array:
        """Streams [m, rows] through the loaded weights and returns [m, columns]."""
        m = activations.shape[0]
        result = np.zeros((m, self.columns), np.float32)
        for cycle in range(m + self.rows + self.columns - 2):
            left_edge = np.zeros(self.rows, np.float32)
            for row in range(self.rows):
                if 0 <= cycle - row < m:
                    left_edge[row] = activations[cycle - row, row]
            bottom = self.tick(left_edge)
            for column in range(self.columns):
                # Row 0's product is made in the cycle it enters, so sum m of column n is complete rows-1+n cycles on.
                index = cycle - (self.rows - 1) - column
                if 0 <= index < m:
                    result[index, column] = bottom[column]
        return result


def mxu_matmul(x: Float32Array, weights: Float32Array, rows: int = 128, columns: int = 128) -> MxuRun:
    """x [m, k] times weights [k, n] on a rows x columns array; operands are rounded to bfloat16 first.

    Raises PodyardError INVALID_ARGUMENT for operands that are no matrices of fitting shapes.
    """
    if x.ndim != 2 or weights.ndim != 2 or x.shape[1] != weights.shape[0]:
        raise invalid(f"a matrix unit multiplies [m, k] by [k, n], not {x.shape} by {weights.shape}")
    x, weights = round_to_bf16(x), round_to_bf16(weights)
    (m, k), n = x.shape, weights.shape[1]
    result = np.zeros((m, n), np.float32)
    array = SystolicArray(rows, columns)
    for first_column in range(0, n, columns):
        width = min(columns, n - first_column)
        for first_row in range(0, k, rows):
            depth = min(rows, k - first_row)
            tile = np.zeros((rows, columns), np.float32)
            tile[:depth, :width] = weights[first_row : first_row + depth, first_column : first_column + width]
            padded = np.zeros((m, rows), np.float32)
            padded[:, :depth] = x[:, first_row : first_row + depth]
            array.load_weights(tile)
            result[:, first_column : first_column + width] += array.stream(padded)[:, :width]
    return MxuRun(result, array.cycles)
