"""Folders of random images in the formats that recipes read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SHAPES = {
    "mnist-cnn": (28, 28),
    "fashion-cnn": (28, 28),
    "mlp": (28, 28),
    "cifar10-cnn": (32, 32, 3),
}


def random_images(folder: Path, recipe: str, train: int, test: int) -> dict[str, object]:
    """Writes a folder of random bytes and labels for `recipe`; returns the arguments that name it.
    A recipe that is
    not in SHAPES brings its own data."""
    if recipe not in SHAPES:
        return {}
    chance = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("test", test)):
        arrays[f"x_{part}"] = chance.integers(0, 256, (count, *SHAPES[recipe]), np.uint8)
        arrays[f"y_{part}"] = chance.integers(0, 10, count).astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "images.npz", allow_pickle=False, **arrays)
    return {"data": str(folder)}
