"""torch_xla.utils.serialization: checkpoints that every process reads."""

from __future__ import annotations

from typing import Any

import torch
from torch_xla.core import xla_model as xm


def save(data: Any, path: Any, master_only: bool = True, global_master: bool = False) -> None:
    xm.save(data, path, master_only, global_master)


def load(path: Any) -> Any:
    return torch.load(path, map_location="cpu")
