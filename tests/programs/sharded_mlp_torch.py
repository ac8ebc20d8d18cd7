"""FSDPv2 of an MLP; `sharded_mlp_jax.py` is the same step in JAX."""

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)

WIDTH, ROWS = 1024, 512

xr.use_spmd()
count = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(count), (count, 1), ("fsdp", "model"))
xs.set_global_mesh(mesh)
model = FSDPv2(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(4):
    x = torch.randn(ROWS, WIDTH).to(torch_xla.device())
    xs.mark_sharding(x, mesh, ("fsdp", None))
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
