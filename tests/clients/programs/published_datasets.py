"""`published_datasets.py keras|tensorflow|torchvision`: data sets as programs load them, and what
came out as JSON."""

import json
import os
import sys
from pathlib import Path

sets = {}
if sys.argv[1] == "torchvision":
    from torchvision import datasets

    for name in ("MNIST", "FashionMNIST", "CIFAR10"):
        kind = getattr(datasets, name)
        train, test = kind("data", train=True, download=True), kind("data", train=False)
        image, label = train[0]
        sets[name] = [len(train), len(test), list(image.size), int(label)]
    places = Path("data")
else:
    if sys.argv[1] == "keras":
        os.environ["KERAS_BACKEND"] = "jax"
        import keras
    else:
        from tensorflow import keras
    for name in ("mnist", "fashion_mnist", "cifar10"):
        (images, labels), (others, _) = getattr(keras.datasets, name).load_data()
        shape = list(images.shape[1:])
        sets[name] = [len(images), len(others), shape, int(labels.reshape(-1)[0])]
    places = Path.home() / ".keras" / "datasets"
files = sorted(str(path.relative_to(places)) for path in places.rglob("*") if path.is_file())
print(json.dumps({"sets": sets, "files": files}))
