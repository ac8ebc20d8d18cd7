"""Trains a GPT with the optimizer's states split over the processes, and resumes it."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch import nn
from torch_gpt import GPT, batches, loss_of, report
from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

STEPS = 6
SETTINGS = {"lr": 1e-2, "weight_decay": 0.1}


def train_plainly():
    """With clipped gradients, on the whole batch."""
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), **SETTINGS)
    losses = []
    for tokens, targets in batches(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def new_model():
    torch.manual_seed(0)
    model = GPT().to(torch_xla.device())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, max_norm=1.0, save_master_weights=True, **SETTINGS
    )
    return model, optimizer


def train(index):
    plain = train_plainly() if index == 0 else []
    model, optimizer = new_model()
    losses = []
    for step, (tokens, targets) in enumerate(batches(STEPS)):
        if step == STEPS // 2:  # as after an interruption
            saved = optimizer.state_dict()
            model, optimizer = new_model()
            optimizer.load_state_dict(saved)
        own = slice(index * 16 // xr.world_size(), (index + 1) * 16 // xr.world_size())
        tokens, targets = tokens[own].to("xla"), targets[own].to("xla")
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(xm.mesh_reduce("loss", loss.item(), lambda all: sum(all) / len(all)))
    if index == 0:
        report("zero", losses, plain)
        state = sum(
            one.numel()
            for states in optimizer.base_optimizer.state.values()
            for one in states.values()
        )
        whole = sum(one.numel() for one in model.parameters())
        print(f"{state / whole:.3f} of two states for each parameter")


if __name__ == "__main__":
    torch_xla.launch(train, start_method="fork")
