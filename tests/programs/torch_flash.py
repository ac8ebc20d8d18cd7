"""Trains a GPT with flash attention, or compares masks and a bias with softmax: python
torch_flash.py processes|spmd|masks."""

import sys

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_gpt import GPT, batches, loss_of, report, train_plainly
from torch_xla.experimental.custom_kernel import flash_attention

STEPS, WIDTH, HEADS = 4, 64, 2
SIZES = {"rows": 8, "length": 128}


def flash(q, k, v):
    return flash_attention(q, k, v, causal=True, sm_scale=q.shape[-1] ** -0.5)


def flash_on_shards(q, k, v):
    spec = ("data", "model", None, None)
    return flash_attention(q, k, v, causal=True, sm_scale=q.shape[-1] ** -0.5, partition_spec=spec)


def train(index, way):
    torch.manual_seed(0)
    plain = train_plainly(GPT(1, WIDTH, HEADS), STEPS, **SIZES)
    torch.manual_seed(0)
    attention = flash_on_shards if way == "spmd" else flash
    model = GPT(1, WIDTH, HEADS, attention).to(torch_xla.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for tokens, targets in batches(STEPS, **SIZES):
        tokens, targets = tokens.to(torch_xla.device()), targets.to(torch_xla.device())
        if way == "spmd":
            for one in (tokens, targets):
                xs.mark_sharding(one, xs.get_global_mesh(), ("data", None))
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
        losses.append(loss.item())
    if index == 0:
        report(way, losses, plain)


def attend_plainly(q, k, v, ab, segments):
    scores = q @ k.transpose(2, 3) * 0.1 + ab
    masked = torch.ones_like(scores, dtype=torch.bool).triu(1)
    masked |= segments[:, None, :, None] != segments[:, None, None, :]
    return torch.softmax(scores.masked_fill(masked, float("-inf")), dim=-1) @ v


def compare_masks():
    """A causal mask, two segments and a bias: outputs and gradients."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 128, 32, requires_grad=True) for _ in range(3))
    ab = torch.randn(2, 2, 128, 128, requires_grad=True)
    segments = (torch.arange(128) // 50).expand(2, 128)
    own = flash_attention(q, k, v, True, segments, segments, 0.1, ab=ab)
    plain = attend_plainly(q, k, v, ab, segments)
    weights = torch.randn_like(plain)
    pairs = zip(
        [own, *torch.autograd.grad((own * weights).sum(), (q, k, v, ab))],
        [plain, *torch.autograd.grad((plain * weights).sum(), (q, k, v, ab))],
        strict=True,
    )
    way = max((one - other).abs().max().item() for one, other in pairs)
    print(f"masks, {way:.1e} from plain PyTorch")


if __name__ == "__main__":
    if sys.argv[1] == "masks":
        compare_masks()
    elif sys.argv[1] == "spmd":
        xr.use_spmd()
        count = xr.global_runtime_device_count()
        xs.set_global_mesh(xs.Mesh(np.arange(count), (count // 2, 2), ("data", "model")))
        train(0, "spmd")
    else:
        torch_xla.launch(train, args=("processes",), start_method="fork")
