"""Trains a small transformer with PyTorch/XLA 2: torch_xla.launch, torch_xla.step and bfloat16."""

import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.amp import autocast

VOCABULARY, WIDTH, LENGTH, BATCH, STEPS = 512, 64, 32, 4, 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.embed(tokens), mask=mask, is_causal=True))


def train(index):
    device = torch_xla.device()
    torch.manual_seed(7)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(index)
    first = last = None
    for step in range(STEPS):
        start = torch.randint(0, VOCABULARY - LENGTH - 1, (BATCH, 1), generator=generator)
        tokens = (start + torch.arange(LENGTH + 1)).to(device)
        with torch_xla.step():
            optimizer.zero_grad()
            with autocast(device):
                logits = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
            loss.backward()
            xm.optimizer_step(optimizer)
        mean = xm.all_reduce(xm.REDUCE_SUM, loss.detach(), scale=1.0 / xr.world_size())
        first, last = first or mean.item(), mean.item()
    devices = f"{xr.world_size()} devices of type {xr.device_type()}, device {device}"
    xm.master_print(f"{devices}: loss {first:.4f} to {last:.4f}")


if __name__ == "__main__":
    torch_xla.launch(train)
