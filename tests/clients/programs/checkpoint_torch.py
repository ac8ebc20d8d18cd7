"""`checkpoint_torch.py PARAMETERS.npz IMAGES.npz SCORES.npy`: a checkpoint of digits-cnn in
PyTorch."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.dense1 = nn.Linear(4 * 4 * 64, 128)
        self.dense2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.conv2(functional.relu(self.conv1(x))))
        x = functional.max_pool2d(x, 2).permute(0, 2, 3, 1).flatten(1)
        return self.dense2(functional.relu(self.dense1(x)))


def in_torchs_order(kernel: np.ndarray) -> np.ndarray:
    return kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T


parameters, images = np.load(sys.argv[1]), np.load(sys.argv[2])["image"]
model = Digits()
model.load_state_dict(
    {
        name.replace("/", ".").replace("kernel", "weight"): torch.tensor(
            in_torchs_order(array) if name.endswith("kernel") else array
        )
        for name, array in parameters.items()
    }
)
with torch.no_grad():
    found = model(torch.tensor(images.transpose(0, 3, 1, 2)))
np.save(sys.argv[3], found.numpy())
