"""Errors of programs for torch_xla, and parts of it that are not emulated: python torch_refusals.py
CASE."""

import sys

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel
from torch_xla.experimental.scan import scan

CASE = sys.argv[1]


def shard_in_a_process(index):
    xr.use_spmd()


if CASE == "fsdp1":
    XlaFullyShardedDataParallel(torch.nn.Linear(4, 4))
elif CASE == "stablehlo":
    xm.get_stablehlo([torch.ones(2, device="xla")])
elif CASE == "unmarked":
    xs.mark_sharding(torch.ones(4, 4, device="xla"), xs.get_1d_mesh("data"), ("data", None))
elif CASE == "rank":
    xr.use_spmd()
    xs.mark_sharding(torch.ones(4, 4, device="xla"), xs.get_1d_mesh("data"), ("data",))
elif CASE == "axis":
    xr.use_spmd()
    xs.mark_sharding(torch.ones(4, 4, device="xla"), xs.get_1d_mesh("data"), ("rows", None))
elif CASE == "spmd":
    torch_xla.launch(shard_in_a_process, start_method="fork")
elif CASE == "carry":
    scan(lambda carry, x: (torch.cat([carry, x]), None), torch.ones(2), torch.ones(3, 2))
elif CASE == "minibatch":
    xr.use_spmd()
    xs.ShardingSpec(xs.get_1d_mesh("data"), ("data", None), minibatch=True)
elif CASE == "auto":
    xr.use_spmd(auto=True)
