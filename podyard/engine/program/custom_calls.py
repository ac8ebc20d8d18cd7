"""Custom calls of StableHLO text that are read as something else, and the attributes that come with
them."""

from __future__ import annotations

from collections.abc import Mapping

from podyard.engine.program.ir import DEVICE, HOST, HOST_KINDS

# Custom calls by which GSPMD marks shardings and the borders of a shard_map (openxla/xla,
# spmd_partitioner.cc).
SHARDING_CALLS = {
    "Sharding": "optimization_barrier", "SPMDFullToShardShape": "shard",
    "SPMDShardToFullShape": "unshard",
    "annotate_device_placement": "optimization_barrier",
}  # fmt: skip


def memory_of(attributes: Mapping[str, object]) -> str:
    """Return the memory of the result of a placement that JAX marks."""
    frontend = attributes.get("mhlo.frontend_attributes")
    kind = frontend.get("_xla_buffer_placement") if isinstance(frontend, dict) else None
    return HOST if kind in HOST_KINDS else DEVICE
