"""Tiles of arrays that are summed up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from podyard.engine.program.ir import HloOperation, Program, TensorType
from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.kernels import laid_bytes, tiles_of
from podyard.engine.timing.layout import LANES, compact_layout
from podyard.hardware.cost_model import SUBLANES, CostModel


@dataclasses.dataclass(frozen=True, slots=True)
class Summed:
    """`resolve`: the value in memory that is another; `lay`: its type as tiles see it;
    `is_outside`: whether it comes from outside."""

    program: Program
    resolve: Callable[[int], int]
    lay: Callable[[int], TensorType]
    is_outside: Callable[[int], bool]
    costs: CostModel

    def tiles(self, kernel: Kernel) -> float:
        """Of the largest array that a kernel sums up."""
        return max(map(self._own, kernel.reductions), default=0.0)

    def _own(self, operation: HloOperation) -> float:
        """A short axis that is summed up (as pairs of columns of an image are that were repeated)
        lies in no tile, if the array is made in the program: another axis is in sublanes, as pads
        least."""
        value = self.resolve(operation.operands[0])
        type_, tiling = self.lay(value), self.costs.tiling
        lies, dims = compact_layout(type_, tiling), operation.ints("dims")
        tiles = tiles_of(type_, self.costs)
        lane, row = lies.lane_axis, lies.sublane_axis
        if (
            lane is None
            or row is None
            or not self.costs.keeps_for_nothing
            or self.is_outside(value)
        ):
            return tiles
        is_whole = type_.shape == self.program.types[operation.operands[0]].shape
        if not is_whole or row not in dims or lane in dims or type_.shape[row] >= SUBLANES:
            return tiles
        others = (axis for axis in range(len(type_.shape)) if axis != lane and axis not in dims)
        area = LANES * SUBLANES * max(type_.itemsize, 0.5)
        return min([tiles, *(laid_bytes(type_, (lane, axis)) / area for axis in others)])
