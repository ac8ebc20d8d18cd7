"""Five steps on the same global batch: by eight processes, or by this one, which adds eight parts'
gradients in order.

python torch_bits.py [METHOD]: with a start method of processes, by torch_xla; without, by PyTorch
alone.
"""

import hashlib
import sys

import torch

PARTS, STEPS = 8, 5


def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 30 * 30, 64),
        torch.nn.Tanh(), torch.nn.Linear(64, 10),
    )  # fmt: skip
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def loss_of(model, step, part):
    generator = torch.Generator().manual_seed(100 * step + part)
    images = torch.randn(4, 3, 32, 32, generator=generator)
    labels = torch.randint(0, 10, (4,), generator=generator)
    return torch.nn.functional.cross_entropy(model(images), labels)


def show(model):
    bits = b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    sys.stdout.write(hashlib.sha256(bits).hexdigest() + "\n")


def train(index):
    import torch_xla.core.xla_model as xm

    model, optimizer = make()
    model = model.to(xm.xla_device())
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, xm.get_ordinal()).backward()
        xm.optimizer_step(optimizer)
    show(model)


def train_alone():
    torch.set_num_threads(1)
    model, optimizer = make()
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(PARTS):
            (loss_of(model, step, part) / PARTS).backward()
        optimizer.step()
    show(model)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import torch_xla.distributed.xla_multiprocessing as xmp

        xmp.spawn(train, start_method=sys.argv[1])
    else:
        train_alone()
