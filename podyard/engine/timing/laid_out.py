"""Bytes of what convolutions read and make in another layout than it has outside of them."""

from __future__ import annotations

from collections.abc import Iterator

from podyard.engine.timing.graph import OF_IMAGES, Kernel
from podyard.engine.timing.kernels import is_kept_near, is_laid_on_chip
from podyard.engine.timing.layout import nbytes_in_memory, padded_bytes
from podyard.engine.timing.pricing import Pricer


def laid_out_bytes(kernel: Kernel, pricer: Pricer, on_chip: bool) -> Iterator[int]:
    """Of results, while the kernels that make them or their copies run."""
    anchor, costs = kernel.anchor, pricer.costs
    is_other = anchor is not None and anchor.opcode not in OF_IMAGES
    if kernel.turns is not None or kernel.copies is not None or is_other:
        return
    read = {*kernel.inputs, *(anchor.operands if anchor is not None else ())}
    layouts = [
        (pricer.program.types[value], minor)
        for value, minor in kernel.layouts.items()
        if value not in read
    ]
    if kernel.moved is not None and kernel.minor:
        layouts.append((kernel.moved, kernel.minor))
    for type_, minor in layouts:
        if on_chip == is_laid_on_chip(type_, minor, costs):
            yield padded_bytes(type_, minor[0], minor[1], costs.tiling)
    plain = kernel.moved if not kernel.minor and not kernel.regroups else None
    if on_chip and plain is not None and is_kept_near(plain, costs):
        yield nbytes_in_memory(plain, costs.tiling)


def copied_bytes(kernel: Kernel, pricer: Pricer) -> Iterator[int]:
    """Of operands, in HBM."""
    for value in kernel.layouts.keys() - set(kernel.outputs):
        type_, minor = pricer.program.types[value], kernel.layouts[value]
        if not is_laid_on_chip(type_, minor, pricer.costs):
            yield padded_bytes(type_, minor[0], minor[1], pricer.costs.tiling)
