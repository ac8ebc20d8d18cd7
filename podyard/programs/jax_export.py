"""Functions that are exported for TPUs can be called where XLA's CPU devices stand for them."""

from __future__ import annotations

import dataclasses
from typing import Any

from podyard.programs import slice as slices


def apply(export: Any) -> None:
    """`export`: jax._src.export._export. Raises what goes wrong, for the hook's line."""
    if slices.from_environment() is None:
        return
    from podyard.programs import jax_internals

    def lower(inner: Any, exported: Any) -> Any:
        return inner(
            dataclasses.replace(exported, platforms=("cpu",))
            if exported.platforms == ("tpu",)
            else exported
        )

    jax_internals.wrap_calls_of_exports(export, lower)
