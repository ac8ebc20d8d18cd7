"""Products of many vectors with an array each, as one query for each head of keys is: the vector
unit does them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from podyard.engine.program.ir import HloOperation, Program, TensorType
from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.kernels import KernelPrice, Product, tiles_of, vector_price
from podyard.engine.timing.layout import LANES, compact_layout
from podyard.hardware.cost_model import SUBLANES, CostModel

# Passes over the scores of one query where what is on the chip costs the full price (three compiled
# steps on v4).
_PASSES_OF_EXPONENTIALS, _PASSES_OF_SHARES = 2.0, 2.5


def _larger(program: Program, anchor: HloOperation) -> tuple[TensorType, tuple[int, ...]]:
    """The larger operand, and its axes that are summed up."""
    sides = zip(anchor.operands[:2], ("lhs_contracting", "rhs_contracting"), strict=True)
    value, name = max(sides, key=lambda side: program.types[side[0]].size)
    return program.types[value], anchor.ints(name)


def sums_lanes(program: Program, anchor: HloOperation, costs: CostModel) -> bool:
    """Return whether the vector lies as the rows that it multiplies; else it is spread over the
    lanes of the last axis."""
    type_, summed = _larger(program, anchor)
    lane = compact_layout(type_, costs.tiling).lane_axis
    return lane in summed or lane != len(type_.shape) - 1


def is_turned_cache(program: Program, anchor: HloOperation, costs: CostModel) -> bool:
    """Return whether a product reads an updated cache of many narrow heads, one query for each:
    positions lie in lanes, and in a loop the compiler brings rows of heads there and back in each
    turn, which the model has not."""
    if (
        anchor.opcode != "dot_general"
        or not anchor.ints("lhs_batching")
        or not costs.prefetch_bytes
    ):
        return False
    value = max(anchor.operands[:2], key=lambda one: program.types[one].size)
    maker, shape = program.producer(value), program.types[value].shape
    is_cache = maker is not None and maker.opcode == "dynamic_update_slice"
    lane = compact_layout(program.types[value], costs.tiling).lane_axis
    is_one = program.types[anchor.results[0]].size * shape[-1] == program.types[value].size
    return (
        is_cache and is_one and lane is not None and lane < len(shape) - 2 and shape[-2] >= SUBLANES
    )


def tiles_of_heads(program: Program, anchor: HloOperation, costs: CostModel) -> float:
    """Tiles of the result where the lanes are summed up: the axis that was in sublanes is in lanes
    then. 0 where it
    lies as usual."""
    type_, summed = _larger(program, anchor)
    layout = compact_layout(type_, costs.tiling)
    heads = 1 if layout.sublane_axis is None else type_.shape[layout.sublane_axis]
    if layout.lane_axis not in summed or layout.sublane_axis in summed or heads == 1:
        return 0.0
    result = program.types[anchor.results[0]]
    return result.size / heads * -(-heads // LANES) / SUBLANES


def vectors_price(  # noqa: PLR0913
    program: Program, kernel: Kernel, product: Product, padding: float, read_bytes: float,
    vpu_cycles: float,
    makers: Mapping[int, Kernel], lay: Callable[[int], TensorType], costs: CostModel,
) -> KernelPrice:  # fmt: skip
    """A kernel of so many products with a vector, and the softmax around it."""
    if kernel.anchor is None:
        return KernelPrice(0.0, "unpriced")
    price = _products_price(program, kernel.anchor, product, padding, read_bytes, costs)
    around = _softmax_around(program, kernel, makers, lay, vpu_cycles, costs)
    return dataclasses.replace(price, cycles=price.cycles + around)


def _products_price(
    program: Program,
    anchor: HloOperation,
    product: Product,
    padding: float,
    read_bytes: float,
    costs: CostModel,
) -> KernelPrice:
    """Products of so many vectors: what each tile takes, and what is read of it. The matrix unit
    does those of scores whose keys are an argument of the program that is left as it is."""
    tiles = product.batch * product.m * product.k * product.n / (LANES * SUBLANES)
    keys = max(anchor.operands[:2], key=lambda value: program.types[value].size)
    type_, contracted = _larger(program, anchor)
    is_of_scores = contracted == (len(type_.shape) - 1,)
    if is_of_scores and keys in program.body.parameters and 1 not in type_.shape:
        return KernelPrice(
            tiles * costs.vectors_multiplied_cycles, "mxu", tiles * costs.vectors_multiplied_cycles
        )
    is_summed = sums_lanes(program, anchor, costs)
    each = costs.vectors_summed_cycles if is_summed else costs.vectors_spread_cycles
    return vector_price(
        0.0, 0.0, tiles * padding * each + read_bytes / padding / costs.bytes_per_cycle, costs
    )


def _softmax_around(
    program: Program, kernel: Kernel, makers: Mapping[int, Kernel],
    lay: Callable[[int], TensorType], vpu_cycles: float,
    costs: CostModel,
) -> float:  # fmt: skip
    """Return what a softmax takes whose scores have heads in lanes: part of it after the product
    that makes them, the rest before the one that reads them. Each is another kernel, with padding
    (`vpu_cycles` is without); the last one makes them narrow, which takes a pass in 4 bytes."""
    for one, is_last in ((kernel, False), *((makers.get(value), True) for value in kernel.inputs)):
        if one is None or one.anchor is None or one.anchor.opcode != "dot_general":
            continue
        if tiles := tiles_of_heads(program, one.anchor, costs):
            usual = max(1.0, tiles_of(lay(one.anchor.results[0]), costs))
            pass_ = tiles * LANES * SUBLANES * 4 / costs.bytes_per_cycle
            work = vpu_cycles * max(1.0, tiles / usual)
            if costs.near_write_share:
                # What is on the chip costs as much as what is not: scores and exponentials in 4
                # bytes, or exponentials, shares in 2 and the pass that narrows them.
                passes = _PASSES_OF_SHARES if is_last else _PASSES_OF_EXPONENTIALS
                return costs.vector_kernel_cycles + max(work, passes * pass_)
            return costs.vector_kernel_cycles + work + (pass_ if is_last else 0.0)
    return vpu_cycles
