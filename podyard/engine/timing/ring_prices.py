"""What a product costs that is worked out in turns while its parts go around a ring of devices."""

from __future__ import annotations

import dataclasses

from podyard.engine.program.ir import HloOperation
from podyard.engine.timing.kernels import KernelPrice, Product, matrix_price, vector_price
from podyard.hardware.cost_model import CostModel


def ring_price(
    product: Product, anchor: HloOperation, result_bytes: float, costs: CostModel
) -> KernelPrice:
    """A product that is worked out in turns of two parts, and what is done with the parts: of a sum
    two that went
    around are added and one is chosen, of columns each is put into the result."""
    devices, axis = anchor.int("ring"), anchor.text("ring_axis")
    parts, share = devices // 2, 2 / devices
    sizes = {size: max(1, round(getattr(product, size) * share)) for size in (axis[-1],)}
    whole = axis == "k"
    own = dataclasses.replace(
        product, **sizes, result_bytes=product.result_bytes * (1 if whole else share),
        left_bytes=product.left_bytes * (1 if axis[-1] == "n" else share),
        right_bytes=product.right_bytes * (1 if axis[-1] == "m" else share),
    )  # fmt: skip
    piece = result_bytes / devices
    price = matrix_price(own, whole * result_bytes * costs.near_read_share, 0.0, costs)
    moved = [(4, 2), (1, 1)] if axis.startswith("sum") else [] if whole else [(1, 1)] * 2
    steps = [_near_step(reads * piece, writes * piece, costs) for reads, writes in moved]
    # What is done with a result of gathered operands comes after all turns.
    after = 0.0 if axis.startswith("sum") else _near_step(result_bytes, result_bytes, costs)
    return dataclasses.replace(
        price, cycles=parts * (price.cycles + sum(steps)) + after,
        mxu_cycles=parts * price.mxu_cycles,
        vpu_cycles=parts * price.vpu_cycles, hbm_cycles=parts * price.hbm_cycles,
    )  # fmt: skip


def _near_step(read: float, written: float, costs: CostModel) -> float:
    """Cycles of an element-wise kernel on the chip, which works in 4 bytes."""
    return vector_price(
        read * costs.near_read_share, written * (costs.near_write_share + 2), 0.0, costs
    ).cycles
