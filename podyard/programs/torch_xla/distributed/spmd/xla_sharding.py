"""torch_xla.distributed.spmd.xla_sharding: marks how tensors are split over a mesh of devices.

Tensors are whole here, and results are those of one device: a mark changes no number. It is what
the step's module says to the partitioner.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch_xla import _spmd, runtime
from torch_xla.distributed.spmd._mesh import (
    HybridMesh,
    Mesh,
    PartitionSpec,
    XlaMesh,
    get_1d_mesh,
    get_global_mesh,
    set_global_mesh,
)
from torch_xla.distributed.spmd.xla_sharded_tensor import XLAShard, XLAShardedTensor, wrap

from podyard.programs.torch_graph import marks

__all__ = [
    "HybridMesh",
    "MarkShardingFunction",
    "Mesh",
    "PartitionSpec",
    "ShardingSpec",
    "ShardingType",
    "XLAShard",
    "XLAShardedTensor",
    "annotate_custom_sharding",
    "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear",
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


class ShardingType(IntEnum):
    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


def mark_sharding(t: torch.Tensor, mesh: XlaMesh, partition_spec: PartitionSpec) -> Any:
    """Marks the tensor itself, and returns it as an XLAShardedTensor.

    `partition_spec`: for each dimension the axis of the mesh that splits it, by name or number, a
    tuple of axes, or None.
    """
    _spmd.require()
    if t.dim() != len(partition_spec):
        raise AssertionError(
            f"Partition spec length ({len(partition_spec)}) should be equal to the input rank "
            f"({t.dim()})."
        )
    whole = t.global_tensor if isinstance(t, XLAShardedTensor) else t
    _spmd.mark(whole, mesh.sharding(tuple(partition_spec)))
    return wrap(whole, mesh.mesh_shape, tuple(partition_spec))


annotate_custom_sharding = mark_sharding


class MarkShardingFunction(torch.autograd.Function):  # type: ignore[misc]
    """Marks a copy of a tensor, and the copy's gradient."""

    @staticmethod
    def forward(ctx: Any, value: Any, mesh: XlaMesh, partition_spec: PartitionSpec) -> Any:
        ctx.placement = mesh, partition_spec
        copy = value.clone()
        mark_sharding(copy, mesh, partition_spec)
        return copy

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        copy = gradient.clone()
        mark_sharding(copy, *ctx.placement)
        return copy, None, None


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: XlaMesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    if t.dim() != len(partition_spec):
        raise AssertionError(
            f"Partition spec length ({len(partition_spec)}) should be equal to the input rank "
            f"({t.dim()})."
        )
    marked: torch.Tensor = MarkShardingFunction.apply(t, mesh, partition_spec)
    return marked


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    marks.clear(t)
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


def wrap_if_sharded(x: Any) -> Any:
    is_plain = isinstance(x, torch.Tensor) and not isinstance(x, XLAShardedTensor)
    if is_plain and marks.sharding_of(x) is not None:
        return wrap(x, None, None)
    return x


def shard_as(a: Any, b: Any) -> tuple[Any, Any]:
    """The partitioner finds equal shardings by itself in most programs: nothing is marked."""
    return a, b


@dataclasses.dataclass
class ShardingSpec:
    """The sharding of a loader's batches. `minibatch`: each host loads its part of the batch."""

    mesh: XlaMesh
    partition_spec: PartitionSpec
    minibatch: bool | None = False

    def __post_init__(self) -> None:
        hosts = runtime.process_count()
        if self.minibatch and hosts > 1:
            raise NotImplementedError(
                f"minibatch=True is not emulated on {hosts} hosts: load the whole batch on each "
                "of them, and leave minibatch away"
            )

    def can_apply(self, t: torch.Tensor) -> bool:
        return bool(t.dim() == len(self.partition_spec))

    def apply(self, t: torch.Tensor) -> None:
        mark_sharding(t, self.mesh, self.partition_spec)


def xla_patched_nn_linear_forward(m: torch.nn.Module, input: torch.Tensor) -> torch.Tensor:
    """The layer without flattening its input's leading dimensions: XLA splits them alike."""
    product = torch.einsum("...n,mn->...m", input, m.weight)
    return product if m.bias is None else product + m.bias


def apply_xla_patch_to_nn_linear(
    module: torch.nn.Module,
    patched_function: Callable[..., Any] = xla_patched_nn_linear_forward,
) -> torch.nn.Module:
    for one in module.modules():
        if isinstance(one, torch.nn.Linear):
            forward = one.forward
            one._original_forward = forward
            one.forward = lambda input, layer=one: patched_function(layer, input)
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> None:
    """A hint to XLA's fusion, which changes no number."""


def sharding_type_of(tensor: torch.Tensor) -> ShardingType | None:
    with _disable_current_modes():
        sharding = marks.sharding_of(tensor)
    if sharding is None:
        return None
    if not sharding.is_split:
        return ShardingType.REPLICATED
    used = {name for dim in sharding.dims for name in dim}
    whole = {name for name, size in sharding.mesh.axes if size > 1}
    return ShardingType.TILED if whole <= used else ShardingType.PARTIAL
