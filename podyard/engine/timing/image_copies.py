"""Copies of arrays around convolutions, from when they are made to when they are read: in another
layout, or with
groups as an axis of their own."""

from __future__ import annotations

from podyard.engine.program.ir import Body, TensorType
from podyard.engine.timing.convolutions import bytes_in_groups
from podyard.engine.timing.graph import OF_IMAGES, Fused, Kernel
from podyard.engine.timing.layout import padded_bytes
from podyard.engine.timing.pricing import Pricer

# Numbers of copies, among those of values, begin here and go down.
_FIRST_COPY = -(2**40)


class ImageCopies:
    """The copies of one body, kernel by kernel in their order: what kernels read and make instead
    of the arrays of the program. `types` and `sizes` of copies; `near` are those that are on the
    chip."""

    def __init__(self, body: Body, fused: Fused, pricer: Pricer) -> None:
        self._pricer = pricer
        self._here = {pricer.resolve(value) for value in body.parameters}
        self._here.update(value for kernel in fused.kernels for value in kernel.outputs)
        self._copies: dict[tuple[int, tuple[int, ...]], int] = {}
        self._last: dict[int, int] = {}
        self._apart: dict[int, int] = {}
        self._leaving: list[int] = []
        self.types: dict[int, TensorType] = {}
        self.sizes: dict[int, int] = {}
        self.near: set[int] = set()

    def read(self, kernel: Kernel, inputs: dict[int, None]) -> dict[int, None]:
        """Return what a kernel really reads: copies of what is copied for it."""
        if kernel.copies is not None:
            is_second = self._is_second(kernel)
            return dict.fromkeys(
                [self._last[kernel.copies]] if is_second else self._sources(kernel.copies)
            )
        if kernel.anchor is None or kernel.anchor.opcode not in OF_IMAGES:
            return inputs
        copied, kept = dict[int, None](), set[int]()
        for operand in kernel.anchor.operands[:2]:
            own = self._pricer.resolve(operand)
            is_copied = operand in kernel.layouts
            key = (
                self._copies.get((own, kernel.layouts[operand]))
                if is_copied
                else self._apart.get(own)
            )
            if key is None:
                kept |= self._pricer.sources_of(operand, kernel)
            else:
                copied[key] = None
        gone = self._pricer.multiplied_operands(kernel) - kept if copied else set()
        layouts = kernel.layouts.items()
        copy_of = {
            value: key
            for value, minor in layouts
            if (key := self._copies.get((value, minor))) is not None
        }
        read = (copy_of.get(value, value) for value in inputs if value not in gone)
        return dict.fromkeys([*copied, *read])

    def _is_second(self, kernel: Kernel) -> bool:
        """Return whether a kernel copies a copy, which has groups as an axis."""
        own = kernel.copies
        return (
            own is not None
            and kernel.moved is not None
            and kernel.moved != self._pricer.program.types[own]
        )

    def make(self, kernel: Kernel) -> list[int]:
        """The copy that a kernel makes to be read by a convolution."""
        if kernel.copies is None or kernel.moved is None or not kernel.minor:
            return []
        key = _FIRST_COPY - len(self.sizes)
        self.types[key] = kernel.moved
        self.sizes[key] = padded_bytes(
            kernel.moved, kernel.minor[0], kernel.minor[1], self._pricer.costs.tiling
        )
        costs = self._pricer.costs
        self.near |= (
            {key} if costs.results_stay and self.sizes[key] <= costs.prefetch_bytes else set()
        )
        self._copies[kernel.copies, kernel.minor] = self._last[kernel.copies] = key
        if self._is_second(kernel):
            self._apart[kernel.copies] = key
        return [key]

    def next_to(self, kernel: Kernel) -> list[int]:
        """Bytes of other arrays while a kernel runs: what a convolution in groups reads and makes,
        in that form; and what it has made while that is copied."""
        if kernel.anchor is not None:
            found, copied = bytes_in_groups(
                self._pricer.program, kernel.anchor, self._pricer.costs.tiling
            )
            self._leaving = [found.get(kernel.anchor.results[0], 0), copied]
            return list(found.values())
        return self._leaving if kernel.regroups else []

    def _sources(self, value: int) -> list[int]:
        """The arrays in memory that a value is made from."""
        found, stack, seen = dict[int, None](), [value], set[int]()
        while stack:
            one = self._pricer.resolve(stack.pop())
            if one in seen:
                continue
            seen.add(one)
            made = self._pricer.program.producer(one)
            if one in self._here:
                found[one] = None
            elif made is not None:
                stack += made.operands
        return list(found)
