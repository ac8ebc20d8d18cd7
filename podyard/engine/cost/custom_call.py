"""The time of a kernel (a custom call): as long as the unit that it keeps busy longest, and a
little for each step.

Blocks are fetched and written back while others are computed (double buffering), so products,
vector work and copies between HBM and VMEM run at the same time; the first block of operands and
the last of results wait for nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Literal

from podyard.base.kernel_cost import KERNEL_ATTRIBUTE, KernelCost, cost_estimate_of, kernel_cost_of
from podyard.hardware.cost_model import CostModel

_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")

# The scalar unit starts the copies of a step and waits for them, which nothing hides. A rough
# figure: no measured one was found.
KERNEL_LINE = "custom_call @"  # how the lines of kernels begin in an estimate
KERNEL = "kernel"  # attribute of an operation that has a KernelCost
STEP_SECONDS = 0.35e-6
VECTOR_TILE = 8 * 128  # numbers in a register
# Vector instructions of a transcendental function: of an exponential, as in timing/kernels.py.
FUNCTION_INSTRUCTIONS = 6.0


@dataclasses.dataclass(frozen=True, slots=True)
class CoreRates:
    """Of one device. `flops_per_second`: of bfloat16 products. `vector_per_second`: numbers by
    instructions of one. `vmem_bytes`: what a kernel may have by default."""

    flops_per_second: float
    vector_per_second: float
    hbm_bytes_per_second: float
    vmem_bytes: float


@dataclasses.dataclass(frozen=True, slots=True)
class KernelSeconds:
    """`matrix`, `vector`, `hbm`: by unit; `overhead`: of steps and of the ends of the pipeline."""

    matrix: float
    vector: float
    hbm: float
    overhead: float

    @property
    def total(self) -> float:
        return max(self.matrix, self.vector, self.hbm) + self.overhead

    @property
    def bound(self) -> Literal["mxu", "vpu", "hbm", "overhead"]:
        units: dict[Literal["mxu", "vpu", "hbm", "overhead"], float] = {
            "mxu": self.matrix, "vpu": self.vector, "hbm": self.hbm, "overhead": self.overhead,
        }  # fmt: skip
        return max(units, key=lambda unit: units[unit])


def rates_of(costs: CostModel) -> CoreRates:
    return CoreRates(
        flops_per_second=2 * costs.mxu_count * costs.mxu_edge**2 * costs.clock_hz,
        vector_per_second=VECTOR_TILE / costs.vector_cycles_per_tile * costs.clock_hz,
        hbm_bytes_per_second=costs.hbm_bytes_per_second,
        vmem_bytes=costs.scoped_vmem_bytes,
    )


def kernel_seconds(cost: KernelCost, rates: CoreRates) -> KernelSeconds:
    vector = cost.vector_operations + FUNCTION_INSTRUCTIONS * cost.transcendentals
    hbm = cost.hbm_bytes / rates.hbm_bytes_per_second
    ends = hbm / cost.steps if cost.steps else 0.0
    return KernelSeconds(
        matrix=max(cost.flops, cost.matrix_flops) / rates.flops_per_second,
        vector=vector / rates.vector_per_second,
        hbm=hbm,
        overhead=cost.steps * STEP_SECONDS + ends,
    )


def doubts_of(cost: KernelCost, rates: CoreRates) -> list[str]:
    """Sentences on what is not known of a kernel, and on whether it fits."""
    too_large = vmem_doubt(cost, rates)
    return [*cost.doubts, *([] if too_large is None else [too_large])]


def vmem_doubt(cost: KernelCost, rates: CoreRates) -> str | None:
    """A sentence where the blocks and the scratch of a kernel are more than the memory that it may
    have."""
    limit = cost.vmem_limit_bytes or rates.vmem_bytes
    if cost.vmem_bytes <= limit:
        return None
    need, room = (size / 2**20 for size in (cost.vmem_bytes, limit))
    return (
        f"kernel {cost.name} needs {need:.1f} MiB of VMEM, and may have {room:.1f} MiB: a TPU "
        "may refuse it"
    )


def kernel_of(attributes: Mapping[str, object]) -> KernelCost | None:
    """Of an operation of a program."""
    cost = attributes.get(KERNEL)
    return cost if isinstance(cost, KernelCost) else None


def read_kernel_cost(attributes: Mapping[str, object], target: str) -> KernelCost | None:
    """Return the cost that a custom call carries: Podyard's record, else the author's
    `cost_estimate`, or None."""
    frontend = attributes.get("mhlo.frontend_attributes")
    text = frontend.get(KERNEL_ATTRIBUTE) if isinstance(frontend, Mapping) else None
    if isinstance(text, str) and (cost := kernel_cost_of(_plain(text))) is not None:
        return cost
    config = attributes.get("backend_config")
    try:
        data = json.loads(_plain(config)) if isinstance(config, str) else config
    except ValueError:
        return None
    name = attributes.get("kernel_name")
    return (
        cost_estimate_of(name if isinstance(name, str) else target, data)
        if isinstance(data, Mapping)
        else None
    )


def _plain(text: str) -> str:
    """A string of MLIR's text without its escapes: a backslash, and two hexadecimal digits or a
    character."""
    inner = text[1:-1] if text.startswith('"') and text.endswith('"') else text
    return _ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if len(match[1]) == 2 else match[1], inner
    )
