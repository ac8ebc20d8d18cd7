"""Trains a CNN on all TPU cores of a host with PyTorch/XLA: a process for each core."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FLAGS = {"batch_size": 16, "epochs": 2, "lr": 0.02, "momentum": 0.5, "path": "mnist_cnn.pt"}


class MNIST(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.bn1 = nn.BatchNorm2d(10)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.bn2 = nn.BatchNorm2d(20)
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = self.bn1(F.relu(F.max_pool2d(self.conv1(x), 2)))
        x = self.bn2(F.relu(F.max_pool2d(self.conv2(x), 2)))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def digits(count, seed):
    """Images of the shape of MNIST's: a bright row for each class, in noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = torch.rand((count, 1, 28, 28), generator=generator)
    images[torch.arange(count), 0, 2 * labels + 4] += 2.0
    return TensorDataset(images, labels)


def _mp_fn(index, flags):
    torch.manual_seed(1)
    device = xm.xla_device()
    world, ordinal = xm.xrt_world_size(), xm.get_ordinal()

    train_data, test_data = digits(1024, seed=0), digits(256, seed=1)
    sampler = DistributedSampler(train_data, num_replicas=world, rank=ordinal, shuffle=True)
    train_loader = DataLoader(train_data, batch_size=flags["batch_size"], sampler=sampler, drop_last=True)
    test_sampler = DistributedSampler(test_data, num_replicas=world, rank=ordinal, shuffle=False)
    test_loader = DataLoader(test_data, batch_size=flags["batch_size"], sampler=test_sampler)
    train_device_loader = pl.MpDeviceLoader(train_loader, device)
    test_device_loader = pl.MpDeviceLoader(test_loader, device)

    model = MNIST().to(device)
    xm.broadcast_master_param(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=flags["lr"] * world, momentum=flags["momentum"])
    tracker = xm.RateTracker()

    def report(step, loss):
        xm.master_print(f"step {step} loss {loss.item():.5f} rate {tracker.rate():.1f}")

    for epoch in range(1, flags["epochs"] + 1):
        sampler.set_epoch(epoch)
        model.train()
        for step, (data, target) in enumerate(train_device_loader):
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            xm.optimizer_step(optimizer)
            tracker.add(flags["batch_size"])
            if step % 4 == 0:
                xm.add_step_closure(report, args=(step, loss))

        model.eval()
        correct = total = 0
        with torch.no_grad():
            for data, target in test_device_loader:
                correct += model(data).argmax(dim=1).eq(target).sum().item()
                total += target.numel()
        accuracy = xm.mesh_reduce("test_accuracy", correct / total, lambda values: sum(values) / len(values))
        xm.master_print(f"epoch {epoch}: {world} cores, accuracy {accuracy:.4f}")

    xm.save(model.state_dict(), flags["path"])
    xm.master_print(f"saved {flags['path']}")


if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(FLAGS,), nprocs=8, start_method="fork")
