"""Which values find room in the chip's memory next to the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np

from podyard.engine.program.ir import Body, Program
from podyard.engine.timing.graph import Fused, Kernel
from podyard.hardware.cost_model import CostModel


def kept_bytes(program: Program, kernel: Kernel) -> int:
    """Return what the sums of a kernel take until it is done."""
    return sum(
        program.types[value].nbytes
        for operation in kernel.reductions
        for value in operation.results
    )


def kept_in_loop(
    body: Body,
    far: Collection[int],
    stacks: Collection[int],
    size_of: Callable[[int], float],
    costs: CostModel,
) -> Iterator[int]:
    """Yield what a loop carries stays on the chip from turn to turn, the smallest first, as far as
    there is room; then, where results stay, what a turn takes or changes only a part of (`stacks`)
    and is not in HBM (`far`) anyway."""
    room = costs.prefetch_bytes
    stay = [
        (own, new)
        for index, (own, new) in enumerate(zip(body.parameters, body.results, strict=False))
        if own not in stacks or (costs.results_stay and index not in far)
    ]
    for own, new in sorted(stay, key=lambda pair: (pair[0] in stacks, size_of(pair[0]))):
        room -= size_of(own) * (1 if own == new or own in stacks else 2)
        if room < 0:
            break
        yield from (own, new)


def large_alone(
    fused: Fused,
    outside: Collection[int],
    size_of: Callable[[int], float],
    room: float,
    stays: bool,
) -> Iterator[int]:
    """Values of more than half of the chip's memory (`room`) that have it for themselves: no other
    one like that lives between the kernel that makes it and its last reader, and what it is made
    from fits next to it, where
    results of products stay. What is updated in place is one with what it was."""
    spans: dict[int, tuple[int, int]] = {}
    names: dict[int, list[int]] = {}
    for place, kernel in enumerate(fused.kernels):
        sizes = [size_of(value) for value in kernel.inputs if stays and value not in outside]
        read = sum(size for size in sizes if size <= room / 2)
        for value in (*kernel.outputs, *kernel.inputs):
            root = fused.in_place.get(value, value)
            if (
                value in kernel.outputs
                and value not in outside
                and room / 2 < size_of(value) <= room - read
            ):
                names.setdefault(root, []).append(value)
            if root in names:
                spans[root] = spans.get(root, (place, place))[0], place
    ordered = sorted(spans.items(), key=lambda span: span[1])
    starts = [first for _, (first, _) in ordered[1:]] + [len(fused.kernels)]
    end = -1
    for (root, (first, last)), following in zip(ordered, starts, strict=False):
        if end < first and last < following:
            yield from names[root]
        end = max(end, last)


def without_room(
    fused: Fused, is_near: Callable[[int], bool], size_of: Callable[[int], float], room: float
) -> Iterator[tuple[int, bool]]:
    """Values small enough for the chip that find no room there next to the others for all of their
    life, and whether a collective sums them up: all that it sums up is held until it ends. What
    lives shortest has its place first."""
    near = {
        value: size_of(value)
        for kernel in fused.kernels
        for value in kernel.outputs
        if is_near(value)
    }
    spans: dict[int, tuple[int, int]] = {}
    ends = {
        sums: place for place, kernel in enumerate(fused.kernels) if (sums := _sums_with(kernel))
    }
    for place, kernel in enumerate(fused.kernels):
        for value in (*kernel.inputs, *kernel.outputs):
            if value in near:
                last = ends.get(_sums_with(kernel), place) if value in kernel.inputs else place
                first, before = spans.get(value, (place, place))
                spans[value] = first, max(before, last)
    sent = {value for kernel in fused.kernels if _sums_with(kernel) for value in kernel.inputs}
    loads = np.zeros(len(fused.kernels))
    for value, (first, last) in sorted(
        spans.items(), key=lambda span: (span[1][1] - span[1][0], near[span[0]])
    ):
        if loads[first : last + 1].max() + near[value] <= room:
            loads[first : last + 1] += near[value]
        else:
            yield value, value in sent


def _sums_with(kernel: Kernel) -> int:
    """The number of a kernel's collective, from one; 0 for other kernels."""
    return (
        kernel.anchor.int("tuple", -1) + 1
        if kernel.anchor is not None and kernel.kind == "collective"
        else 0
    )
