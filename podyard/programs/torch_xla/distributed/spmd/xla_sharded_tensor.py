"""torch_xla.distributed.spmd.xla_sharded_tensor: a tensor with its sharding."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch_xla import _spmd

from podyard.programs.torch_graph.marks import sharding_of
from podyard.programs.torch_graph.shardings import TensorSharding


@dataclasses.dataclass
class XLAShard:
    """The part of a tensor that one device of this host holds. `indices`: of the whole tensor,
    without padding; Ellipsis: all of it."""

    data: torch.Tensor
    indices: Any
    shard_device: str
    replica_id: int

    @property
    def unpadded_data(self) -> torch.Tensor:
        return self.data


class XLAShardedTensor(torch.Tensor):  # type: ignore[misc]
    """It shares the memory of the tensor that was marked; what is computed from it are plain
    tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    mesh_shape: tuple[int, ...] | None
    partition_spec: tuple[Any, ...] | None

    @property
    def global_tensor(self) -> torch.Tensor:
        with _disable_current_modes():
            return self.as_subclass(torch.Tensor)

    @property
    def sharding_spec(self) -> str:
        return spec_text(self)

    @property
    def local_shards(self) -> list[XLAShard]:
        """Of the devices of this host, in the order of their numbers."""
        sharding = sharding_of(self)
        whole = self.global_tensor.detach()
        shards = []
        for place, number in enumerate(_spmd.local_devices()):
            device = f"TPU:{place}"
            if sharding is None or not sharding.is_split:
                shards.append(XLAShard(whole.clone(), Ellipsis, device, number))
                continue
            indices, replica = _shard_of(sharding, number, tuple(whole.shape))
            shards.append(XLAShard(whole[tuple(indices)].clone(), indices, device, replica))
        return shards

    def __repr__(self) -> str:
        return f"XLAShardedTensor({self.global_tensor})"


def wrap(tensor: torch.Tensor, mesh_shape: Any, partition_spec: Any) -> Any:
    with _disable_current_modes():
        sharded = tensor.as_subclass(XLAShardedTensor)
    sharded.mesh_shape, sharded.partition_spec = mesh_shape, partition_spec
    return sharded


def spec_text(tensor: torch.Tensor) -> str:
    """As XLA prints the sharding, such as `{devices=[4,1,2]0,1,2,3,4,5,6,7
    last_tile_dim_replicate}`; empty where there is none."""
    sharding = sharding_of(tensor)
    if sharding is None:
        return ""
    if not sharding.is_split:
        return "{replicated}"
    order, replicas = _tile_order(sharding)
    tiles = [*sharding.parts(), *([replicas] if replicas > 1 else [])]
    rest = " last_tile_dim_replicate" if replicas > 1 else ""
    return f"{{devices=[{','.join(map(str, tiles))}]{','.join(map(str, order))}{rest}}}"


def _tile_order(sharding: TensorSharding) -> tuple[list[int], int]:
    """The devices in the order of the tiles, and how many hold the same one."""
    names = [name for name, _ in sharding.mesh.axes]
    sizes = sharding.mesh.sizes
    split = [name for dim in sharding.dims for name in dim]
    turn = [*split, *(name for name in names if name not in split)]
    order = []
    for places in itertools.product(*(range(sizes[name]) for name in turn)):
        place = dict(zip(turn, places, strict=True))
        number = 0
        for name in names:
            number = number * sizes[name] + place[name]
        order.append(sharding.mesh.order[number])
    replicas = len(order)
    for part in sharding.parts():
        replicas //= part
    return order, replicas


def _shard_of(
    sharding: TensorSharding, device: int, shape: tuple[int, ...]
) -> tuple[list[slice], int]:
    """The device's part of each dimension, and which of the replicas it is."""
    order, replicas = _tile_order(sharding)
    tile, replica = divmod(order.index(device), replicas)
    indices: list[slice] = []
    sizes = sharding.shard_shape(shape)
    for axis in reversed(range(len(shape))):
        tile, place = divmod(tile, sharding.parts()[axis])
        begin = min(shape[axis], place * sizes[axis])
        indices.insert(0, slice(begin, min(shape[axis], begin + sizes[axis]), 1))
    return indices, replica
