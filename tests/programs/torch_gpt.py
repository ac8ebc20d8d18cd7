"""A small GPT of PyTorch, for the programs beside it: its batches, its layers, its loss."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 256


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    def __init__(self, width, heads, attention=attend):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for one in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """`run_layers`: called with the layers and their input."""

    def __init__(self, layers=2, width=64, heads=4, attention=attend, run_layers=None):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads, attention) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.run_layers = run_layers

    def forward(self, tokens):
        x = self.embed(tokens)
        if self.run_layers is not None:
            x = self.run_layers(self.layers, x)
        else:
            for layer in self.layers:
                x = layer(x)
        return self.head(self.norm(x))


def batches(count, rows=16, length=32):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        tokens = torch.randint(0, VOCABULARY, (rows, length + 1), generator=generator)
        yield tokens[:, :-1], tokens[:, 1:]


def loss_of(model, tokens, targets):
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def train_plainly(model, steps, lr=1e-2, **sizes):
    """The losses of plain PyTorch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for tokens, targets in batches(steps, **sizes):
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def report(name, losses, plain):
    """One line: the losses, and how far they are from plain PyTorch's."""
    way = max(abs(one - other) for one, other in zip(losses, plain, strict=True))
    print(f"{name}: {losses[0]:.4f} to {losses[-1]:.4f}, {way:.1e} from plain PyTorch", flush=True)
