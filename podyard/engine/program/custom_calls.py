"""Custom calls of StableHLO text that are read as something else, and the attributes that come with
them."""

from __future__ import annotations

from collections.abc import Mapping

from podyard.base.kernel_cost import HOST_CALL
from podyard.engine.program.ir import DEVICE, HOST, HOST_KINDS

# Custom calls by which GSPMD marks shardings and the borders of a shard_map (openxla/xla,
# spmd_partitioner.cc).
SHARDING_CALLS = {
    "Sharding": "optimization_barrier", "SPMDFullToShardShape": "shard",
    "SPMDShardToFullShape": "unshard",
    "annotate_device_placement": "optimization_barrier",
}  # fmt: skip

_NAME_CHARACTERS_MAX = 100


def host_call_names(attributes: Mapping[str, object], target: str) -> dict[str, object]:
    """Return the attribute of a custom call that names its operations of the host."""
    config = attributes.get("backend_config")
    if target != HOST_CALL or not isinstance(config, str):
        return {}
    return {HOST_CALL: config.strip('"')[:_NAME_CHARACTERS_MAX]}


def memory_of(attributes: Mapping[str, object]) -> str:
    """Return the memory of the result of a placement that JAX marks."""
    frontend = attributes.get("mhlo.frontend_attributes")
    kind = frontend.get("_xla_buffer_placement") if isinstance(frontend, dict) else None
    return HOST if kind in HOST_KINDS else DEVICE
