"""Records steps of models; writes what each took, and the parameters it left: python torch_graph.py
FOLDER."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch import nn
from torch.utils._pytree import tree_flatten

from podyard.programs.torch_steps import StepRecording

FOLDER = Path(sys.argv[1])


class Kept(StepRecording):
    """With the values of arguments and results."""

    def __init__(self):
        super().__init__(1)
        self.taken, self.early = {}, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for one in tree_flatten((args, kwargs))[0]:
            if (
                isinstance(one, torch.Tensor)
                and not one.is_meta
                and self._key(one) not in self._refs
            ):
                self.early[self._key(one)] = one.detach().clone()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _ref(self, tensor):
        known = self._key(tensor) in self._refs
        ref = super()._ref(tensor)
        if not known and not tensor.is_meta:
            self.taken[ref.number] = self.early[self._key(tensor)]
        return ref


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 6, 3, dilation=2, padding=2)
        self.conv3 = nn.Conv1d(6, 4, 4, stride=3)
        self.out = nn.Linear(4 * 5, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv1(x))), 2, padding=1, stride=2)
        x = F.avg_pool2d(F.silu(self.conv2(x)), 2, stride=1)
        return F.log_softmax(
            self.out(torch.tanh(self.conv3(x.flatten(2)[:, :, :17])).flatten(1)), dim=-1
        )


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = (
            one.unflatten(-1, (2, 8)).transpose(1, 2)
            for one in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        weights = torch.softmax(x @ x.transpose(1, 2) / 4.0, dim=-1).tril()
        return self.down(F.gelu(self.up(weights @ x))).flatten(0, 1)


def conv_step(model, x, y):
    return F.nll_loss(model(x), y)


def attention_step(model, x, y):
    logits = model(x)
    return F.cross_entropy(logits, y) + F.mse_loss(
        torch.sigmoid(logits), torch.ones_like(logits)
    ).clamp(0.0, 10.0)


def data(kind):
    if kind is ConvNet:
        return torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    return torch.randint(0, 50, (3, 7)), torch.randint(0, 50, (21,))


device = xm.xla_device()
SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}
for name, kind, step, make, options in (
    ("conv_sgd", ConvNet, conv_step, torch.optim.SGD, SGD),
    ("conv_rmsprop", ConvNet, conv_step, torch.optim.RMSprop, {"lr": 0.01}),
    ("attention_adam", Attention, attention_step, torch.optim.Adam, {"lr": 0.01}),
    ("attention_adamw", Attention, attention_step, torch.optim.AdamW, {"lr": 0.01}),
):
    torch.manual_seed(0)
    model = kind().to(device)
    optimizer = make(model.parameters(), **options)
    for _ in range(3):
        x, y = (one.to(device) for one in data(kind))
        recording = Kept()
        with recording:
            optimizer.zero_grad()
            loss = step(model, x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            accuracy = (model(x).argmax(-1) == y).float().mean()
    text, arguments, results = recording.write(name)
    (FOLDER / f"{name}.mlir").write_bytes(text)
    found = {
        f"in{place}": recording.taken[number].numpy() for place, number in enumerate(arguments)
    }
    for parameter in model.parameters():  # as the step left them
        place = results.index(recording._ref(parameter).number)
        found[f"out{place}"] = parameter.detach().numpy()
    np.savez(FOLDER / f"{name}.npz", **found)
