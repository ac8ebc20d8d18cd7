"""torch_xla.distributed.spmd: tensors that are split over all devices of the slice."""

from __future__ import annotations

from torch_xla.distributed.spmd.xla_sharding import (
    HybridMesh,
    MarkShardingFunction,
    Mesh,
    ShardingSpec,
    ShardingType,
    XLAShard,
    XLAShardedTensor,
    annotate_custom_sharding,
    apply_backward_optimization_barrier,
    clear_sharding,
    get_1d_mesh,
    get_global_mesh,
    mark_sharding,
    mark_sharding_with_gradients,
    set_global_mesh,
    shard_as,
    wrap_if_sharded,
    xla_patched_nn_linear_forward,
)

__all__ = [
    "HybridMesh",
    "MarkShardingFunction",
    "Mesh",
    "ShardingSpec",
    "ShardingType",
    "XLAShard",
    "XLAShardedTensor",
    "annotate_custom_sharding",
    "apply_backward_optimization_barrier",
    "clear_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "shard_as",
    "wrap_if_sharded",
    "xla_patched_nn_linear_forward",
]
