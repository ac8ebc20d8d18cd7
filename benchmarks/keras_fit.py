"""The reference models in tf.keras, trained by `model.fit` on numpy arrays: the child process of
benchmarks.training.

    PYTHON benchmarks/keras_fit.py FOLDER MODEL BATCH

FOLDER/data.npz holds images (bytes) and labels, FOLDER/params.npz what the other side starts from,
by its names. The first line out says what this is, {"missing": ...} where TensorFlow cannot be
imported; then, for each line of seconds in, images per second over an epoch of about as long. It
runs under any Python that has TensorFlow, without Podyard.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
EXAMPLES_CHECKED = 256
_WARM_UP_STEPS = 10


def main() -> None:
    folder, name, batch = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    try:
        import keras  # type: ignore[import-not-found]
        import tensorflow  # type: ignore[import-untyped]
    except ImportError as error:
        say({"missing": f"{sys.executable}: {error}"})
        return
    with np.load(folder / "data.npz") as data:
        images = data["images"].astype(np.float32) * np.float32(1 / 255.0)
        labels = data["labels"]
    model = MODELS[name](keras)
    with np.load(folder / "params.npz") as params:
        for layer in model.layers:
            if layer.weights:
                layer.set_weights([params[f"{layer.name}/kernel"], params[f"{layer.name}/bias"]])
    first = slice(EXAMPLES_CHECKED)
    threading = tensorflow.config.threading
    say(
        {
            "versions": (
                f"tensorflow {tensorflow.__version__}, keras {keras.__version__}, numpy "
                f"{np.__version__}"
            ),
            "threads": [
                threading.get_intra_op_parallelism_threads(),
                threading.get_inter_op_parallelism_threads(),
            ],
            "parameters": model.count_params(),
            "loss": float(
                model.evaluate(
                    images[first], labels[first], batch_size=EXAMPLES_CHECKED, verbose=0
                )[0]
            ),
        }
    )
    spent = fit(keras, model, images, labels, batch, _WARM_UP_STEPS)
    spent = fit(keras, model, images, labels, batch, _WARM_UP_STEPS)
    for line in sys.stdin:
        steps = max(2, min(len(images) // batch, round(float(line) / spent)))
        spent = fit(keras, model, images, labels, batch, steps)
        say(batch / spent)


def fit(keras: Any, model: Any, images: Any, labels: Any, batch: int, steps: int) -> float:
    """Seconds a step, over one epoch of `steps` steps."""

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        begin = seconds = 0.0

        def on_epoch_begin(self, _epoch: int, _logs: Any = None) -> None:
            self.begin = time.perf_counter()

        def on_epoch_end(self, _epoch: int, _logs: Any = None) -> None:
            self.seconds = time.perf_counter() - self.begin

    clock, count = Clock(), steps * batch
    model.fit(
        images[:count], labels[:count], batch_size=batch, epochs=1, verbose=0, callbacks=[clock]
    )
    return clock.seconds / steps


def mnist_cnn(keras: Any) -> Any:
    layers = keras.layers
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=100_000, decay_rate=0.96)
    return compiled(
        keras,
        keras.optimizers.SGD(rate),
        keras.Input((28, 28, 1)),
        layers.Conv2D(32, 5, padding="same", activation="relu", name="conv1"),
        layers.MaxPooling2D(2),
        layers.Conv2D(64, 5, padding="same", activation="relu", name="conv2"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dense(128, activation="relu", name="dense1"),
        layers.Dropout(0.4),
        layers.Dense(10, name="dense2"),
    )


def fashion_cnn(keras: Any) -> Any:
    layers = keras.layers
    return compiled(
        keras,
        keras.optimizers.Adam(1e-3),
        keras.Input((28, 28, 1)),
        layers.Conv2D(64, 3, activation="relu", name="conv1"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dense(10, name="dense1"),
    )


def cifar10_cnn(keras: Any) -> Any:
    layers = keras.layers
    return compiled(
        keras,
        keras.optimizers.Adam(1e-3),
        keras.Input((32, 32, 3)),
        layers.Conv2D(32, 3, padding="same", activation="relu", name="conv1"),
        layers.Conv2D(32, 3, activation="relu", name="conv2"),
        layers.MaxPooling2D(2),
        layers.Dropout(0.25),
        layers.Conv2D(64, 3, padding="same", activation="relu", name="conv3"),
        layers.Conv2D(64, 3, activation="relu", name="conv4"),
        layers.MaxPooling2D(2),
        layers.Dropout(0.25),
        layers.Flatten(),
        layers.Dense(512, activation="relu", name="dense1"),
        layers.Dropout(0.5),
        layers.Dense(10, name="dense2"),
    )


MODELS = {"mnist-cnn": mnist_cnn, "fashion-cnn": fashion_cnn, "cifar10-cnn": cifar10_cnn}


def compiled(keras: Any, optimizer: Any, *layers: Any) -> Any:
    model = keras.Sequential(list(layers))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    return model


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
