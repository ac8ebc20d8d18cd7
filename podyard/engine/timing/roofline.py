"""The first timing model: each operation runs at the peak of the matrix units or of HBM, whichever it meets first.

It knows no tiles, no fixed cost per kernel and no infeed, so it is a lower bound: against the real compiler's
estimates, rooflines are 16 to 60 per cent off on single matrix products.
"""

from __future__ import annotations

import dataclasses

from podyard.base.errors import invalid
from podyard.engine.program.ops import DeviceProgram, Op
from podyard.hardware.accelerator_types import AcceleratorType

ESTIMATE_MODEL = "roofline"

# Source: jax-ml/scaling-book, tpus.md: about 1 us per hop of the inter-chip interconnect.
ICI_HOP_SECONDS = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class StepEstimate:
    """One data-parallel step; flops and bytes are those of one device."""

    modelled_seconds: float
    compute_seconds: float
    collective_seconds: float
    flops: int
    hbm_bytes: int
    ici_bytes: int
    estimate_model: str = ESTIMATE_MODEL


def estimate_step(program: DeviceProgram, kind: AcceleratorType, device_count: int) -> StepEstimate:
    """The time of one step on a slice of `kind` whose chips are shared evenly by `device_count` shards.

    Raises PodyardError INVALID_ARGUMENT when there is no device.
    """
    if device_count < 1:
        raise invalid(f"a slice has at least one device, not {device_count}")
    chips_per_device = kind.chip_count / device_count
    flops_per_second = kind.generation.peak_bf16_flops_per_second * chips_per_device
    hbm_bytes_per_second = kind.generation.hbm_bytes_per_second * chips_per_device
    compute_seconds = sum(op_seconds(op, flops_per_second, hbm_bytes_per_second) for op in program.ops)
    collective_seconds = all_reduce_seconds(kind, program.all_reduce_bytes)
    return StepEstimate(
        modelled_seconds=compute_seconds + collective_seconds,
        compute_seconds=compute_seconds,
        collective_seconds=collective_seconds,
        flops=program.flops,
        hbm_bytes=program.hbm_bytes,
        ici_bytes=all_reduce_bytes_per_chip(kind, program.all_reduce_bytes),
    )


def op_seconds(op: Op, flops_per_second: float, hbm_bytes_per_second: float) -> float:
    """What bounds it: the matrix units (the vector unit's work is hidden behind its bytes) or HBM."""
    compute_seconds = op.flops / flops_per_second if op.kind == "matrix" else 0.0
    return max(compute_seconds, op.hbm_bytes / hbm_bytes_per_second)


def all_reduce_bytes_per_chip(kind: AcceleratorType, nbytes: int) -> int:
    """What each chip sends: 2 (n - 1) / n of the vector."""
    return round(2 * (kind.chip_count - 1) * nbytes / kind.chip_count)


def all_reduce_seconds(kind: AcceleratorType, nbytes: int) -> float:
    """Rings along every dimension at once, each dimension taking an equal share of the bytes: the bandwidth of all
    links of a chip (half of them in a dimension that does not wrap: there the ring turns back over the same links),
    and the hops of the dimensions one after another, once to scatter and once to gather."""
    extents = [
        (extent, wraps) for extent, wraps in zip(kind.topology.shape, kind.topology.wrap, strict=True) if extent > 1
    ]
    if not extents:
        return 0.0
    links = sum(2.0 if wraps else 1.0 for _, wraps in extents)
    bytes_per_second = links * kind.generation.ici_link_bytes_per_second
    hops = 2 * sum(extent - 1 for extent, _ in extents)
    return all_reduce_bytes_per_chip(kind, nbytes) / bytes_per_second + hops * ICI_HOP_SECONDS
