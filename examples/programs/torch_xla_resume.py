"""Trains until it is told that its TPU is taken back, saves, and goes on from there when it is started again."""

import os
import signal
import sys
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm

PATH, STEPS = sys.argv[1], int(sys.argv[2])
stop = False


def on_sigterm(signum, frame):
    global stop
    stop = True


def train(index):
    signal.signal(signal.SIGTERM, on_sigterm)
    torch.manual_seed(0)
    device = torch_xla.device()
    model = torch.nn.Linear(16, 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if os.path.exists(PATH):
        state = torch.load(PATH, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    xm.master_print(f"starts at step {first}", flush=True)
    for step in range(first, STEPS):
        generator = torch.Generator().manual_seed(1000 * step + index)
        data = torch.randn(8, 16, generator=generator).to(device)
        optimizer.zero_grad()
        loss = (model(data) - data.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        xm.master_print(f"step {step + 1} loss {loss.item():.6f}", flush=True)
        time.sleep(0.02)
        # All processes leave at the same step.
        if any(xm.mesh_reduce("stop", stop, list)):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            xm.save(state, PATH)
            xm.master_print(f"saved at step {step + 1}", flush=True)
            return
    total = sum(parameter.sum().item() for parameter in model.parameters())
    xm.master_print(f"trained {STEPS} steps: {total:.9f}", flush=True)


if __name__ == "__main__":
    torch_xla.launch(train)
