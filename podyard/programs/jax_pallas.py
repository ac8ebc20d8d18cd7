"""Pallas kernels: operations without effects, which run in JAX's interpreters when a program
computes."""

from __future__ import annotations

import os
import sys
from typing import Any

from podyard.base.kernel_cost import KernelCost
from podyard.programs import slice as slices

LINE = (
    "podyard: Pallas kernels run in JAX's interpreter, which is slow; their time on the "
    "TPU is modelled"
)
SIMULATED = (
    "podyard: Pallas kernels that signal or copy between chips run in JAX's simulator of TPUs, "
    "without an estimate of "
    "their time; --dry-run has one"
)


def apply(_pallas: Any) -> None:
    """Raises what goes wrong, for the hook's line."""
    of = slices.from_environment()
    if of is None:
        return
    from podyard.programs.kernels import jax_kernels
    from podyard.programs.lowering import kernel_rules
    from podyard.programs.lowering.report import report

    if absent := jax_kernels.missing():
        raise RuntimeError(f"this JAX has no {', '.join(absent)}")

    def check(cost: KernelCost) -> None:
        if (error := kernel_rules.vmem_rejection(cost, of.generation)) is not None:
            report(error)

    def check_lowering(primitive: Any, params: Any, avals: Any) -> None:
        if (error := kernel_rules.lowering_rejection(primitive, params, avals)) is not None:
            report(error)

    jax_kernels.read_kernel_uses()
    if int(os.environ.get(slices.DRY_RUN_VARIABLE) or 0):
        jax_kernels.lower_for_tpu(check)
        return
    told: set[str] = set()

    def tell(is_simulated: bool) -> None:
        line = SIMULATED if is_simulated else LINE
        if line not in told:
            told.add(line)
            print(line, file=sys.stderr)

    jax_kernels.interpret(tell, check, check_lowering)
