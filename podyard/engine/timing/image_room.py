"""Which copies around convolutions in groups are on the chip (from v4 on): those of one share its
room."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from podyard.engine.program.ir import TensorType
from podyard.engine.timing.convolutions import has_groups
from podyard.engine.timing.graph import Fused, Kernel
from podyard.engine.timing.kernels import is_laid_near
from podyard.engine.timing.layout import padded_bytes
from podyard.hardware.cost_model import CostModel


@dataclasses.dataclass(slots=True)
class ImageRoom:
    """`far`: kernels whose copy finds no room on the chip. `laid_far`: (kernel, array) of a
    convolution and such a
    copy. `again`: kernels that copy a copy which is on the chip."""

    far: set[int] = dataclasses.field(default_factory=set)
    laid_far: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    again: set[int] = dataclasses.field(default_factory=set)
    # What is left on the chip next to each copy, its source apart.
    left: dict[int, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, fused: Fused, resolve: Callable[[int], int], costs: CostModel) -> ImageRoom:
        found, waiting = cls(), dict[int, list[Kernel]]()
        last: Kernel | None = None
        room, leaving = 0.0, list[Kernel]()
        for kernel in fused.kernels:
            if kernel.kind == "copy" and kernel.minor and kernel.copies is not None:
                waiting.setdefault(kernel.copies, []).append(kernel)
            elif kernel.kind == "copy" and kernel.minor:
                leaving.append(kernel)
            elif (
                kernel.anchor is not None
                and kernel.anchor.opcode == "convolution"
                and has_groups(kernel.anchor)
            ):
                if last is not None and last.anchor is not None:
                    found._take(leaving, last, last.anchor.results[0], room, costs)
                room, last, leaving = costs.prefetch_bytes, kernel, []
                read = [
                    (waiting.pop(resolve(value), []), value) for value in kernel.anchor.operands[:2]
                ]
                for copies, value in sorted(
                    read, key=lambda pair: pair[0][0].index if pair[0] else 0
                ):
                    room = found._take(copies, kernel, value, room, costs)
        if last is not None and last.anchor is not None:
            found._take(leaving, last, last.anchor.results[0], room, costs)
        return found

    def is_near(self, kernel: Kernel, value: int, type_: TensorType, costs: CostModel) -> bool:
        """Return whether the copy of an array around a convolution is on the chip, and costs little
        for that."""
        return (kernel.index, value) not in self.laid_far and is_laid_near(
            type_, kernel.layouts[value], costs
        )

    def _take(
        self, copies: list[Kernel], reader: Kernel, value: int, room: float, costs: CostModel
    ) -> float:
        """Return what is left when an array has been copied, at most twice one after the other. Of
        two copies that do not fit next to each other the second stays, if it fits."""
        sizes = [
            padded_bytes(copy.moved, copy.minor[0], copy.minor[1], costs.tiling)
            if copy.moved is not None
            else 0
            for copy in copies
        ]
        if not sizes:
            return room
        are_near = [size < room for size in sizes]
        if all(are_near) and sum(sizes) >= room:
            are_near[0] = False
        for place, copy in enumerate(copies):
            if place and are_near[place - 1]:
                self.again.add(copy.index)
            if not are_near[place]:
                self.far.add(copy.index)
                self.laid_far.add((reader.index, value))
            self.left[copy.index] = room - sizes[place] * are_near[place]
        return room - sizes[-1] * are_near[-1]
