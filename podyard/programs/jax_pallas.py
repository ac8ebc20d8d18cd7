"""Pallas kernels run in JAX's interpreter for TPUs: it simulates their memories, copies and
semaphores on the CPU."""

from __future__ import annotations

import sys
from typing import Any

from podyard.programs import slice as slices

LINE = (
    "podyard: Pallas kernels run in JAX's interpreter: right, slow, and without an estimate "
    "of their time"
)


def apply(_pallas: Any) -> None:
    """Raises what goes wrong, for the hook's line."""
    if slices.from_environment() is None:
        return
    from podyard.programs import jax_internals

    told: list[str] = []

    def tell() -> None:
        if not told:
            told.append(LINE)
            print(LINE, file=sys.stderr)

    jax_internals.interpret_kernels(tell)
