"""Errors for the parts of torch_xla that are not emulated: they say what to do in their place."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from podyard.programs import slice as slices


def refusal(name: str, instead: str) -> Callable[..., Any]:
    """A function that says that it is not there."""

    def refuse(*_args: Any, **_named: Any) -> Any:
        raise NotImplementedError(f"{name} is not emulated: {instead}")

    return refuse


def refuse_dry_run() -> None:
    """End a dry run in which a program asks for a device or for processes. Programs in JAX may
    import torch_xla: their libraries do where it is installed."""
    if int(os.environ.get(slices.DRY_RUN_VARIABLE) or 0):
        raise SystemExit(
            "podyard: a dry run needs JAX: steps of PyTorch are computed; leave --dry-run away"
        )
