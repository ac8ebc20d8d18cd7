"""Convolutions whose kernel is larger than their image: the TPU compiler lets both change places.

The gradient of the kernel of a transposed convolution is written so: an image with zeros in between
meets the gradient, which has twice its size. The compiler turns the gradient around (a separate
kernel, to which it gives no cycles), and lets the image go over it in steps of two, with no zeros.
So XLA's simplifier does (`SwapConvOperands`): not in groups, and where fewer numbers are multiplied
after that.
"""

from __future__ import annotations

import dataclasses

from podyard.engine.program.ir import Body, HloOperation, Program
from podyard.engine.timing.convolutions import image_axes, image_bytes
from podyard.engine.timing.graph import CONTROL
from podyard.engine.timing.kernels import KernelPrice
from podyard.engine.timing.layout import LANES, compact_layout
from podyard.hardware.cost_model import SUBLANES, CostModel

# What `Placement` makes of the array that is turned around: a separate array.
REVERSED = "reversed"


def swap_operands(program: Program) -> Program:
    """The program with such convolutions swapped; the same object where there are none."""
    maker = _Swapping(program)
    body = maker.body(program.body)
    return (
        program
        if body is program.body
        else dataclasses.replace(program, body=body, types=maker.types)
    )


def reversed_price(
    program: Program, reverse: HloOperation, is_argument: bool, costs: CostModel
) -> KernelPrice:
    """Return what turning an array around takes. The compiler gives cycles to that where the axes
    are in no tile, as of what a convolution writes."""
    type_ = program.types[reverse.results[0]]
    lies, images = compact_layout(type_, costs.tiling), image_axes(program.body, program.types)
    in_tile = {lies.lane_axis, lies.sublane_axis} if is_argument else set()
    if type_.shape not in images or not in_tile.isdisjoint(reverse.ints("dims")):
        return KernelPrice(0.0, "unpriced")
    tiles = image_bytes(type_, images[type_.shape], costs.tiling) / (
        LANES * SUBLANES * type_.itemsize
    )
    cycles = tiles * costs.reverse_cycles_per_tile
    return KernelPrice(cycles, "vpu", vpu_cycles=cycles)


class _Swapping:
    def __init__(self, program: Program) -> None:
        self.types = list(program.types)

    def body(self, body: Body) -> Body:
        operations: list[HloOperation] = []
        is_changed = False
        for given in body.operations:
            step = given.with_bodies(self.body) if given.opcode in CONTROL else given
            is_changed |= step is not given
            if step.opcode == "convolution" and self._is_swapped(step):
                operations += self._swap(step)
                is_changed = True
            else:
                operations.append(step)
        return Body(body.parameters, operations, body.results) if is_changed else body

    def _extents(self, step: HloOperation) -> tuple[list[int], list[int]]:
        """Those of the image and of the kernel along the axes of an image."""
        image, kernel = (self.types[value].shape for value in step.operands[:2])
        return [image[axis] for axis in step.ints("lhs_dims")[2:]], [
            kernel[axis] for axis in step.ints("kernel_dims")[2:]
        ]

    def _is_swapped(self, step: HloOperation) -> bool:
        if step.int("feature_group_count", 1) > 1 or step.int("batch_group_count", 1) > 1:
            return False
        padding, steps = (
            step.ints("padding"),
            zip(step.ints("strides"), step.ints("lhs_dilation"), strict=True),
        )
        taps = swapped_taps = 1
        for place, ((stride, dilation), own, window) in enumerate(
            zip(steps, *self._extents(step), strict=True)
        ):
            spread = step.ints("rhs_dilation")[place]
            edges = padding[2 * place : 2 * place + 2]
            # A sum over the whole axis, and one that stands for a group, stay as they are.
            whole = (window, dilation, stride) in ((own, 1, 1), (dilation, window, window - 1))
            if whole and spread == 1 and edges == (0, 0):
                continue
            is_one = own == 1 and stride == spread == 1 and edges == (window - 1, window - 1)
            taps *= window
            swapped_taps *= window if is_one else own
        return taps > swapped_taps

    def _swap(self, step: HloOperation) -> list[HloOperation]:
        """The kernel, turned around, and the convolution of it with the image. What is summed up at
        an output is the same: the image begins where the first number of the kernel did, and ends
        with the last."""
        images, kernel = step.operands[:2]
        lhs_dims, kernel_dims, out_dims = (
            step.ints(name) for name in ("lhs_dims", "kernel_dims", "out_dims")
        )
        made = self.types[step.results[0]].shape
        padding: list[int] = []
        for place, (own, window) in enumerate(zip(*self._extents(step), strict=True)):
            reach = (own - 1) * step.ints("lhs_dilation")[place] - (window - 1) * step.ints(
                "rhs_dilation"
            )[place]
            low = step.ints("padding")[2 * place] + reach
            end = (made[out_dims[2 + place]] - 1) * step.ints("strides")[place]
            padding += [low, end + reach - low]
        self.types.append(self.types[kernel])
        turned = len(self.types) - 1
        attributes = {
            **step.attributes, "padding": tuple(padding),
            "lhs_dims": (*kernel_dims[1::-1], *kernel_dims[2:]),
            "kernel_dims": (*lhs_dims[1::-1], *lhs_dims[2:]),
            "out_dims": (*out_dims[1::-1], *out_dims[2:]),
            "lhs_dilation": step.ints("rhs_dilation"), "rhs_dilation": step.ints("lhs_dilation"),
        }  # fmt: skip
        how: dict[str, object] = {"dims": kernel_dims[2:], "step": REVERSED}
        operands = (turned, images, *step.operands[2:])
        return [
            HloOperation("reverse", (kernel,), (turned,), how, where=step.where),
            dataclasses.replace(step, operands=operands, attributes=attributes),
        ]
