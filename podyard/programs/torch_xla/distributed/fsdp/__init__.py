"""torch_xla.distributed.fsdp: FSDP of one process for each device is not emulated; its policies and
checkpoints are here, since FSDPv2 uses them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from torch_xla._refusals import refusal

__all__ = ["XlaFullyShardedDataParallel", "checkpoint_module"]


XlaFullyShardedDataParallel = refusal(
    "torch_xla.distributed.fsdp.XlaFullyShardedDataParallel (FSDP v1)",
    "use FSDPv2, torch_xla.experimental.spmd_fully_sharded_data_parallel."
    "SpmdFullyShardedDataParallel, after torch_xla.runtime.use_spmd() and without "
    "torch_xla.launch; or ZeRO-1, torch_xla.distributed.zero_redundancy_optimizer",
)


def checkpoint_module(module: torch.nn.Module, **named: Any) -> torch.nn.Module:
    """The module computes its forward again in the backward pass. `named`: of
    torch.utils.checkpoint."""
    forward = module.forward
    named.setdefault("use_reentrant", False)

    def compute_again(*args: Any, **options: Any) -> Any:
        return checkpoint(forward, *args, **named, **options)

    module.forward = compute_again
    return module
