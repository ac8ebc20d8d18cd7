"""An image classifier with fastai on a TPU core: a folder of images, one cycle, an exported Learner.

podyard run --tpu v3-8 -- python fastai_vision.py
"""

from pathlib import Path

import numpy as np
import torch_xla.core.xla_model as xm
from fastai.vision.all import (
    ImageDataLoaders,
    Resize,
    accuracy,
    load_learner,
    resnet18,
    vision_learner,
)
from PIL import Image


def make_images(folder):
    chance = np.random.default_rng(0)
    for label, shade in (("dark", 0), ("light", 180)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(40):
            pixels = chance.integers(0, 70, (64, 64, 3)) + shade
            Image.fromarray(pixels.astype("uint8")).save(folder / label / f"{number}.png")


if __name__ == "__main__":
    folder = Path("images")
    make_images(folder)
    loaders = ImageDataLoaders.from_folder(
        folder, valid_pct=0.2, seed=1, bs=8, item_tfms=Resize(64), num_workers=0,
        device=xm.xla_device(),
    )
    learner = vision_learner(loaders, resnet18, metrics=accuracy, pretrained=False)
    learner.fit_one_cycle(1)
    losses = [float(loss) for loss in learner.recorder.losses]
    print(f"{xm.xla_device()}: loss {losses[0]:.2f} to {losses[-1]:.2f}")
    learner.export("model.pkl")
    label, _, _ = load_learner(folder / "model.pkl").predict(folder / "light" / "0.png")
    print(f"exported, predicts {label in ('dark', 'light')}")
