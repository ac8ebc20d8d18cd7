"""Write small data sets of random images: `python data.py FOLDER`."""

import sys
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
folder = Path(sys.argv[1])


def images(name, shape):
    """A file like Keras' mnist.npz."""
    (folder / name).mkdir(parents=True)
    parts = {}
    for part, count in (("train", 1024), ("test", 256)):
        parts[f"x_{part}"] = rng.integers(0, 256, (count, *shape), np.uint8)
        parts[f"y_{part}"] = rng.integers(0, 10, count, np.uint8)
    np.savez(folder / name / "data.npz", **parts)


images("mnist", (28, 28))
images("cifar-10", (32, 32, 3))
