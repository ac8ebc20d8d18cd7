"""torch_xla._XLAC: of the C++ module, what programs ask about shardings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_xla.distributed.spmd.xla_sharded_tensor import spec_text
from torch_xla.distributed.spmd.xla_sharding import sharding_type_of


def _get_xla_sharding_spec(tensor: Any) -> str:
    return str(spec_text(tensor))


def _get_xla_sharding_specs(tensors: Sequence[Any]) -> list[str]:
    return [spec_text(one) for one in tensors]


def _get_xla_sharding_type(tensor: Any) -> int | None:
    kind = sharding_type_of(tensor)
    return None if kind is None else int(kind)
