"""Trains a GPT whose layers are scanned: python torch_scan.py."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch_gpt import GPT, batches, loss_of, report, train_plainly
from torch_xla.experimental.scan import scan
from torch_xla.experimental.scan_layers import scan_layers

STEPS, LAYERS = 4, 3


def accumulate(carry, x):
    total = carry + x
    return total, {"total": total, "twice": 2 * total}


def scan_sums():
    """The gradient of cumulative sums: how often each element counts."""
    init = torch.zeros(2, device=xm.xla_device(), requires_grad=True)
    xs = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device=xm.xla_device())
    xs.requires_grad_()
    carry, ys = scan(accumulate, init, xs)
    ys["total"].sum().backward()
    torch_xla.sync()
    print(carry.tolist(), ys["twice"].tolist(), init.grad.tolist(), xs.grad.tolist())


def main():
    scan_sums()
    torch.manual_seed(0)
    plain = train_plainly(GPT(LAYERS), STEPS)
    torch.manual_seed(0)
    model = GPT(LAYERS, run_layers=scan_layers).to(torch_xla.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for tokens, targets in batches(STEPS):
        tokens, targets = tokens.to(torch_xla.device()), targets.to(torch_xla.device())
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        losses.append(loss.item())
    report("scan", losses, plain)


if __name__ == "__main__":
    main()
