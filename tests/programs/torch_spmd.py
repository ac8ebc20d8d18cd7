"""Trains a GPT over all devices by shardings: python torch_spmd.py data|fsdp|tensor."""

import sys
from functools import partial

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_gpt import GPT, Layer, batches, loss_of, report, train_plainly
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)

STEPS = 4


def shard_layers(model, mesh):
    """Megatron's way: columns of the first product, rows of the second."""
    for layer in model.layers:
        for first, second in ((layer.qkv, layer.out), (layer.up, layer.down)):
            xs.mark_sharding(first.weight, mesh, ("model", "data"))
            xs.mark_sharding(first.bias, mesh, ("model",))
            xs.mark_sharding(second.weight, mesh, ("data", "model"))


def main(way):
    xr.use_spmd()
    count = xr.global_runtime_device_count()
    torch.manual_seed(0)
    plain = train_plainly(GPT(), STEPS)
    torch.manual_seed(0)
    model = GPT().to(torch_xla.device())
    axis = "data"
    if way == "fsdp":
        mesh, axis = xs.Mesh(np.arange(count), (count, 1), ("fsdp", "tensor")), "fsdp"
        xs.set_global_mesh(mesh)
        policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
        model = FSDPv2(model, auto_wrap_policy=policy)
    elif way == "tensor":
        mesh = xs.HybridMesh(ici_mesh_shape=(count // 2, 2), axis_names=("data", "model"))
        shard_layers(model, mesh)
    else:
        mesh = xs.get_1d_mesh("data")
    loader = pl.MpDeviceLoader(
        list(batches(STEPS)), xm.xla_device(), input_sharding=xs.ShardingSpec(mesh, (axis, None))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for tokens, targets in loader:
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    report(way, [loss.item() for loss in losses], plain)
    weight = model.layers[0].up.weight
    shards = xs.wrap_if_sharded(weight.detach())
    if way == "data":
        assert shards is not None and not isinstance(shards, xs.XLAShardedTensor)
    else:
        spec = torch_xla._XLAC._get_xla_sharding_spec(weight)
        print(spec, tuple(shards.local_shards[0].data.shape))


if __name__ == "__main__":
    main(sys.argv[1])
