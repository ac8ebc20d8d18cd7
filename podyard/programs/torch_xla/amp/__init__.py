"""torch_xla.amp: bfloat16 where it is safe, as PyTorch casts for CPUs."""

from __future__ import annotations

from typing import Any

import torch
from torch_xla.amp import syncfree

__all__ = ["GradScaler", "autocast", "syncfree"]


def autocast(
    device: Any = "xla", enabled: bool = True, dtype: Any = None, cache_enabled: bool = True
) -> Any:
    """`device`: an XLA device."""
    return torch.autocast(
        torch.device(str(device)).type, dtype or torch.bfloat16, enabled, cache_enabled
    )


def GradScaler(*args: Any, use_zero_grad: bool = False, **named: Any) -> Any:  # noqa: ARG001
    return torch.amp.GradScaler("cpu", *args, **named)
