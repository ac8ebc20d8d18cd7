"""Where operands of convolutions are when those start: in HBM, or on the chip (from v4 on)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from podyard.engine.program.ir import Program
from podyard.engine.timing.convolutions import ConvolutionGroups, bytes_in_groups, copied_operands
from podyard.engine.timing.graph import Fused, Kernel
from podyard.engine.timing.kernels import has_room_near
from podyard.engine.timing.layout import padded_bytes
from podyard.hardware.cost_model import CostModel


@dataclasses.dataclass(slots=True)
class ImageEnds:
    """`copied`: arrays that are copied or converted before they are read, in the kernel, too:
    having them on the chip
    at the start gains nothing. `far`: images that a convolution copies while it reads them, from
    HBM. `near`: (kernel, array) of what is on the chip with groups as an axis."""

    copied: set[int] = dataclasses.field(default_factory=set)
    far: set[int] = dataclasses.field(default_factory=set)
    near: set[tuple[int, int]] = dataclasses.field(default_factory=set)

    @classmethod
    def of(
        cls,
        program: Program,
        fused: Fused,
        sources: Callable[[int, Kernel], Iterable[int]],
        costs: CostModel,
    ) -> ImageEnds:
        """`sources`: what a kernel makes an operand from."""
        found, types = cls(), program.types
        for kernel in fused.kernels:
            anchor = kernel.anchor
            if anchor is None or anchor.opcode != "convolution":
                continue
            copied = set(copied_operands(program, anchor, costs.tiling))
            in_groups, _ = bytes_in_groups(program, anchor, costs.tiling)
            groups = ConvolutionGroups.of(program, anchor, costs.tiling)
            crossed = groups.crossed if groups is not None else {}
            for place, operand in enumerate(anchor.operands[:2]):
                own = [
                    one
                    for one in sources(operand, kernel)
                    if types[one].size == types[operand].size
                ]
                # Of the gradient of a kernel, the other operand is priced better as if it came from
                # HBM.
                is_priced = place == 0 or anchor.int("batch_group_count", 1) == 1
                is_here = (
                    operand in in_groups and is_priced and has_room_near(in_groups[operand], costs)
                )
                for type_, minor in crossed.get(operand, ()):
                    is_here = (
                        costs.results_stay
                        and padded_bytes(type_, *minor, costs.tiling) <= costs.prefetch_bytes
                    )
                found.near.update((kernel.index, one) for one in own if is_here)
                if place == 0 and place in copied and operand not in kernel.layouts:
                    found.far.update(own)
                found.copied.update(
                    one
                    for one in own
                    if place in copied or types[one].dtype != types[operand].dtype
                )
        return found
