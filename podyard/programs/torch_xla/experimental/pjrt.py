"""torch_xla.experimental.pjrt: where torch_xla.runtime was in 1.13 and 2.0."""

from __future__ import annotations

from torch_xla.core.xla_model import broadcast_master_param
from torch_xla.runtime import device_type, global_ordinal, local_ordinal, using_pjrt, world_size

__all__ = [
    "broadcast_master_param",
    "device_type",
    "global_ordinal",
    "local_ordinal",
    "using_pjrt",
    "world_size",
]
