"""What goes wrong in programs with several processes: python torch_failures.py CASE."""

import os
import signal
import sys

import torch
import torch.multiprocessing

if sys.argv[1] == "untested":
    torch.__version__ = "9.9.0"
if sys.argv[1] == "newer" and hasattr(torch.multiprocessing, "ProcessException"):
    del torch.multiprocessing.ProcessException  # as from 2.14 on

import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

CASE = sys.argv[1]


def train(index):
    model = torch.nn.Linear(4, 4).to(xm.xla_device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if CASE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    batches = 9 if CASE == "uneven" and index == 3 else 10
    for batch in range(batches):
        if index == 3 and batch == 4:
            if CASE in ("raises", "deaf", "newer"):
                raise ValueError("a bad batch")
            if CASE == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if CASE == "shapes":
                xm.all_reduce(xm.REDUCE_SUM, torch.ones(3))
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    method = "spawn" if CASE == "untested" else "fork"
    xmp.spawn(train, nprocs=4 if CASE == "nprocs" else None, start_method=method)
