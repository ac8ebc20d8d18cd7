"""Values of more than half of the chip's memory that stay there all the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from podyard.engine.timing.graph import Fused


def large_alone(
    fused: Fused, outside: Collection[int], size_of: Callable[[int], float], room: float, stays: bool
) -> Iterator[int]:
    """Values of more than half of the chip's memory (`room`) that have it for themselves: no other one like that lives
    between the kernel that makes it and its last reader, and what it is made from fits next to it, where
    results of products stay. What is updated in place is one with what it was."""
    spans: dict[int, tuple[int, int]] = {}
    names: dict[int, list[int]] = {}
    for place, kernel in enumerate(fused.kernels):
        sizes = [size_of(value) for value in kernel.inputs if stays and value not in outside]
        read = sum(size for size in sizes if size <= room / 2)
        for value in (*kernel.outputs, *kernel.inputs):
            root = fused.in_place.get(value, value)
            if value in kernel.outputs and value not in outside and room / 2 < size_of(value) <= room - read:
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
