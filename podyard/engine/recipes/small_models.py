"""The small reference models: convolutional and dense networks on images of a few thousand pixels
at most.

Parameters are by name: "conv1/kernel" [kh, kw, in, out], "dense1/kernel" [in, out], "…/bias" [out].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from podyard.engine.recipes.datasets import images_of
from podyard.engine.recipes.digits import SIDE_PIXELS, load_digits
from podyard.engine.recipes.layers import (
    conv,
    conv_same,
    dropout,
    glorot_tensors,
    max_pool,
    max_pool_2x2,
    precision_counts,
    softmax_cross_entropy,
)
from podyard.engine.recipes.model import Model
from podyard.engine.recipes.tensors import Feature, numbers_below, pixels
from podyard.engine.training.input.augment import Geometry
from podyard.engine.training.optimizers import Adam, Optimizer, Sgd, exponential_decay
from podyard.engine.training.recipe import Input

_MNIST_EXAMPLES = 60_000
_FASHION_EXAMPLES = 60_000
_CIFAR_EXAMPLES = 50_000
_DIGITS_EXAMPLES = 1438
_CLASSES = 10
# As the user's own training had it: degrees, and shares of the image's size.
_AUGMENTED = Geometry(rotation_degrees=20, width_shift=0.2, height_shift=0.2, horizontal_flip=True)
_MNIST_DECAY, _MNIST_DECAY_STEPS = 0.96, 100_000


def mnist_cnn(arguments: Mapping[str, Any]) -> Model:
    """Pixels are bytes / 255 - 0.5."""
    shapes = {
        **_layer("conv1", 5, 5, 1, 32),
        **_layer("conv2", 5, 5, 32, 64),
        **_layer("dense1", 7 * 7 * 64, 128),
        **_layer("dense2", 128, 10),
    }

    def logits(params: Any, image: Any, key: Any) -> Any:
        x = jax.nn.relu(conv_same(image, params["conv1/kernel"], params["conv1/bias"]))
        x = max_pool(x, 2, 2)
        x = jax.nn.relu(conv_same(x, params["conv2/kernel"], params["conv2/bias"]))
        x = _flat(max_pool(x, 2, 2))
        x = dropout(jax.nn.relu(_dense(params, "dense1", x)), arguments["dropout"], key)
        return _dense(params, "dense2", x)

    schedule = exponential_decay(arguments["learningRate"], _MNIST_DECAY, _MNIST_DECAY_STEPS)
    data = images_of(arguments["data"], (28, 28, 1), offset=-0.5)
    return _classifier(
        shapes, pixels((28, 28, 1), offset=-0.5), logits, Sgd(schedule), _MNIST_EXAMPLES, data
    )


def fashion_cnn(arguments: Mapping[str, Any]) -> Model:
    """Pixels are bytes / 255. Relu after pooling: it costs a quarter, and maxima commute with
    it."""
    shapes = {**_layer("conv1", 3, 3, 1, 64), **_layer("dense1", 13 * 13 * 64, 10)}

    def logits(params: Any, image: Any, _key: Any) -> Any:
        x = conv(image, params["conv1/kernel"], padding="VALID") + params["conv1/bias"]
        return _dense(params, "dense1", _flat(jax.nn.relu(max_pool(x, 2, 2))))

    data = images_of(arguments["data"], (28, 28, 1))
    return _classifier(
        shapes,
        pixels((28, 28, 1)),
        logits,
        Adam(arguments["learningRate"]),
        _FASHION_EXAMPLES,
        data,
    )


def cifar10_cnn(arguments: Mapping[str, Any]) -> Model:
    """Pixels are bytes / 255."""
    shapes = {
        **_layer("conv1", 3, 3, 3, 32),
        **_layer("conv2", 3, 3, 32, 32),
        **_layer("conv3", 3, 3, 32, 64),
        **_layer("conv4", 3, 3, 64, 64),
        **_layer("dense1", 6 * 6 * 64, 512),
        **_layer("dense2", 512, 10),
    }

    def stage(params: Any, first: str, second: str, x: Any, key: Any) -> Any:
        x = jax.nn.relu(conv_same(x, params[f"{first}/kernel"], params[f"{first}/bias"]))
        x = jax.nn.relu(
            conv(x, params[f"{second}/kernel"], padding="VALID") + params[f"{second}/bias"]
        )
        return dropout(max_pool(x, 2, 2), 0.25, key)

    def logits(params: Any, image: Any, key: Any) -> Any:
        keys = [None] * 3 if key is None else jax.random.split(key, 3)
        x = stage(params, "conv1", "conv2", image, keys[0])
        x = _flat(stage(params, "conv3", "conv4", x, keys[1]))
        x = dropout(jax.nn.relu(_dense(params, "dense1", x)), 0.5, keys[2])
        return _dense(params, "dense2", x)

    data = images_of(arguments["data"], (32, 32, 3), _AUGMENTED)
    return _classifier(
        shapes, pixels((32, 32, 3)), logits, Adam(arguments["learningRate"]), _CIFAR_EXAMPLES, data
    )


def mlp(arguments: Mapping[str, Any]) -> Model:
    """Pixels are bytes / 255, in a row."""
    shapes = {
        **_layer("dense1", 784, 512),
        **_layer("dense2", 512, 512),
        **_layer("dense3", 512, 10),
    }

    def logits(params: Any, image: Any, _key: Any) -> Any:
        x = jax.nn.relu(_dense(params, "dense1", image))
        x = jax.nn.relu(_dense(params, "dense2", x))
        return _dense(params, "dense3", x)

    data = images_of(arguments["data"], (784,))
    return _classifier(
        shapes, pixels((784,)), logits, Adam(arguments["learningRate"]), _MNIST_EXAMPLES, data
    )


def digits_cnn(arguments: Mapping[str, Any]) -> Model:
    """Pixels are sixteenths."""
    shapes = {
        **_layer("conv1", 3, 3, 1, 32),
        **_layer("conv2", 3, 3, 32, 64),
        **_layer("dense1", 4 * 4 * 64, 128),
        **_layer("dense2", 128, 10),
    }

    def logits(params: Any, image: Any, key: Any) -> Any:
        x = jax.nn.relu(conv_same(image, params["conv1/kernel"], params["conv1/bias"]))
        x = jax.nn.relu(conv_same(x, params["conv2/kernel"], params["conv2/bias"]))
        x = jax.nn.relu(_dense(params, "dense1", _flat(max_pool_2x2(x))))
        return _dense(params, "dense2", dropout(x, arguments["dropout"], key))

    image = pixels((SIDE_PIXELS, SIDE_PIXELS, 1))
    return _classifier(
        shapes, image, logits, Adam(arguments["learningRate"]), _DIGITS_EXAMPLES, load_digits
    )


def _layer(name: str, *kernel: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": kernel, f"{name}/bias": kernel[-1:]}


def _flat(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def _dense(params: Any, name: str, x: Any) -> Any:
    return x @ params[f"{name}/kernel"] + params[f"{name}/bias"]


def _classifier(
    shapes: Mapping[str, tuple[int, ...]],
    image: Feature,
    logits: Callable[[Any, Any, Any], Any],
    optimizer: Optimizer,
    example_count: int,
    data: Callable[[], Input],
) -> Model:
    """`logits`: f(params, image [n, ...], key) -> [n, classes]; without a key there is no
    dropout."""

    def loss(
        params: Any, statistics: Any, batch: Any, key: Any
    ) -> tuple[Any, tuple[Mapping[str, Any], Any]]:
        value, accuracy = softmax_cross_entropy(logits(params, batch["image"], key), batch["label"])
        return value, ({"accuracy": accuracy}, statistics)

    def evaluate(params: Any, _statistics: Any, batch: Any) -> Mapping[str, Any]:
        scores = logits(params, batch["image"], None)
        value, accuracy = softmax_cross_entropy(scores, batch["label"])
        precision = precision_counts(jnp.argmax(scores, axis=1), batch["label"], _CLASSES)
        return {"loss": value, "accuracy": accuracy, "precision": precision}

    def predict(params: Any, _statistics: Any, batch: Any) -> Any:
        return jnp.argmax(logits(params, batch["image"], None), axis=1)

    return Model(
        params=glorot_tensors(shapes),
        features={"image": image, "label": numbers_below(_CLASSES)},
        loss=loss,
        optimizer=lambda _global_batch: optimizer,
        example_count=example_count,
        evaluate=evaluate,
        predict=predict,
        input=data,
    )
