"""ResNet-50, of two variants: v1 has the stride of a bottleneck in its first convolution, as
`keras.applications.ResNet50` has, and v1.5 in its 3x3 one, as MLPerf has.

Parameters and statistics have the names and shapes of the weights of `keras.applications.ResNet50`.

Source: He et al., arXiv 1512.03385, section 4.1 and table 1; training as in Goyal et al., arXiv
1706.02677.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from podyard.base.training_settings import DIGITS
from podyard.engine.recipes.datasets import images_of
from podyard.engine.recipes.digits import digits_of
from podyard.engine.recipes.layers import batch_norm, conv, max_pool, softmax_cross_entropy
from podyard.engine.recipes.model import Model
from podyard.engine.recipes.tensors import (
    Tensor,
    constant,
    he_normal,
    normal,
    numbers_below,
    ones,
    pixels,
    zeros,
)
from podyard.engine.training.optimizers import Lars, Momentum, Optimizer, warm_up_and_stairs

_IMAGENET_EXAMPLES = 1_281_167
_STAGES = (3, 4, 6, 3)
_WIDTH = 64
_EXPANSION = 4
_V1 = "v1"
# Of batch normalization: keras.applications, and the MLPerf reference.
_EPSILONS = {_V1: 1.001e-5, "v1.5": 1e-5}
_KEPT = 0.9  # share of a running average that a step leaves
_SMOOTHING = 0.1
_MOMENTUM = 0.9
_WEIGHT_DECAY = 1e-4
_STAIRS_AT_EPOCHS = (30, 60, 80)
_RATE_BATCH = 256
# Of the pixels that are judged in one program: activations are a hundred times as large.
_JUDGED_BYTES_MAX = 16 << 20


def resnet_50(arguments: Mapping[str, Any]) -> Model:
    """Arguments as in the manifest of the program."""
    classes, side, data = arguments["classes"], arguments["imageSize"], arguments["data"]
    network = ResNet(
        _STAGES,
        _WIDTH,
        classes,
        jnp.dtype(arguments["dtype"]),
        arguments["batchNormGroups"],
        arguments["variant"],
    )
    # Centred bytes, in the type that is computed with: an input pipeline converts them before they
    # are sent.
    image = pixels((side, side, 3), network.dtype, -0.5)
    at_once = max(1, _JUDGED_BYTES_MAX // (4 * math.prod(image.shape)))
    read = (
        digits_of(side)
        if data == DIGITS
        else images_of(data, image.shape, resizes=True, offset=-0.5, classes=classes)
    )

    def optimizer(global_batch: int) -> Optimizer:
        epoch_steps = _IMAGENET_EXAMPLES / global_batch
        schedule = warm_up_and_stairs(
            arguments["learningRate"] * global_batch / _RATE_BATCH,
            arguments["warmUpEpochs"] * epoch_steps,
            tuple(epoch * epoch_steps for epoch in _STAIRS_AT_EPOCHS),
        )
        kind = Lars if arguments["optimizer"] == "lars" else Momentum
        return kind(schedule, _MOMENTUM, _WEIGHT_DECAY)

    return Model(
        params=network.params(),
        statistics=network.statistics(),
        features={"image": image, "label": numbers_below(classes)},
        loss=network.loss,
        optimizer=optimizer,
        example_count=_IMAGENET_EXAMPLES,
        evaluate=network.evaluate,
        predict=network.predict,
        input=lambda: dataclasses.replace(read(), judged_at_once=at_once),
    )


@dataclasses.dataclass(frozen=True)
class ResidualBlock:
    """A bottleneck: 1x1 to `inner`, 3x3, 1x1 to `outer` channels. `strides`: of the first two."""

    name: str
    entering: int
    inner: int
    outer: int
    strides: tuple[int, int]

    @property
    def projects(self) -> bool:
        """Return whether the shortcut needs a convolution to fit."""
        return self.stride != 1 or self.entering != self.outer

    @property
    def stride(self) -> int:
        return math.prod(self.strides)


# f(name, convolved [n, h, w, c]) -> the same, normalized
Normalization = Callable[[str, Any], Any]


@dataclasses.dataclass(frozen=True)
class ResNet:
    """`stages`: bottlenecks per stage; `width`: channels behind the first convolution. Parameters
    are float32 by name: "…_conv/kernel" (with "…_conv/bias" in v1), "…_bn/gamma", "…_bn/beta";
    statistics "…_bn/moving_mean" and "…_bn/moving_variance"."""

    stages: tuple[int, ...]
    width: int
    classes: int
    dtype: Any
    batch_norm_groups: int = 1
    variant: str = "v1.5"

    def blocks(self) -> Iterator[ResidualBlock]:
        entering = self.width
        for stage, count in enumerate(self.stages):
            inner = self.width * 2**stage
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                yield ResidualBlock(
                    f"conv{stage + 2}_block{index + 1}",
                    entering,
                    inner,
                    _EXPANSION * inner,
                    (stride, 1) if self.variant == _V1 else (1, stride),
                )
                entering = _EXPANSION * inner

    def params(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}

        def convolution(
            name: str, side: int, entering: int, leaving: int, scale: float = 1.0
        ) -> None:
            tensors[f"{name}_conv/kernel"] = Tensor((side, side, entering, leaving), he_normal)
            if self.variant == _V1:
                tensors[f"{name}_conv/bias"] = Tensor((leaving,), zeros)
            tensors[f"{name}_bn/gamma"] = Tensor((leaving,), constant(scale))
            tensors[f"{name}_bn/beta"] = Tensor((leaving,), zeros)

        convolution("conv1", 7, 3, self.width)
        features = self.width
        for block in self.blocks():
            convolution(f"{block.name}_1", 1, block.entering, block.inner)
            convolution(f"{block.name}_2", 3, block.inner, block.inner)
            # A block starts as its shortcut (Goyal et al., section 5.1).
            convolution(f"{block.name}_3", 1, block.inner, block.outer, scale=0.0)
            if block.projects:
                convolution(f"{block.name}_0", 1, block.entering, block.outer)
            features = block.outer
        tensors["predictions/kernel"] = Tensor((features, self.classes), normal(0.01))
        tensors["predictions/bias"] = Tensor((self.classes,), zeros)
        return tensors

    def statistics(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, tensor in self.params().items():
            if name.endswith("/gamma"):
                layer = name.removesuffix("/gamma")
                tensors |= {
                    f"{layer}/moving_mean": Tensor(tensor.shape, zeros),
                    f"{layer}/moving_variance": Tensor(tensor.shape, ones),
                }
        return tensors

    def loss(
        self, params: Any, statistics: Any, batch: Any, _key: Any
    ) -> tuple[Any, tuple[Mapping[str, Any], Any]]:
        """Of batch["image"] [n, side, side, 3] and batch["label"] [n]; the batch's own statistics
        normalize it."""
        moved: dict[str, Any] = {}

        def normalize(name: str, x: Any) -> Any:
            x, mean, variance = batch_norm(
                x,
                params[f"{name}/gamma"],
                params[f"{name}/beta"],
                _EPSILONS[self.variant],
                self.batch_norm_groups,
            )
            for part, value in (("moving_mean", mean), ("moving_variance", variance)):
                before = statistics[f"{name}/{part}"]
                moved[f"{name}/{part}"] = _KEPT * before + (1 - _KEPT) * value
            return x

        logits = self._logits(params, batch["image"], normalize)
        value, accuracy = softmax_cross_entropy(
            logits.astype(jnp.float32), batch["label"], _SMOOTHING
        )
        return value, ({"accuracy": accuracy}, moved)

    def evaluate(self, params: Any, statistics: Any, batch: Any) -> Mapping[str, Any]:
        logits = self.logits(params, statistics, batch["image"])
        value, accuracy = softmax_cross_entropy(logits, batch["label"])
        return {"loss": value, "accuracy": accuracy}

    def predict(self, params: Any, statistics: Any, batch: Any) -> Any:
        return jnp.argmax(self.logits(params, statistics, batch["image"]), axis=1)

    def logits(self, params: Any, statistics: Any, image: Any) -> Any:
        """[n, side, side, 3] -> [n, classes] in float32; the running averages normalize."""

        def normalize(name: str, x: Any) -> Any:
            mean, variance = (
                statistics[f"{name}/{part}"] for part in ("moving_mean", "moving_variance")
            )
            scale = params[f"{name}/gamma"] * lax.rsqrt(variance + _EPSILONS[self.variant])
            wide = (x.astype(jnp.float32) - mean) * scale + params[f"{name}/beta"]
            return wide.astype(x.dtype)

        return self._logits(params, image, normalize).astype(jnp.float32)

    def _logits(self, params: Any, image: Any, normalize: Normalization) -> Any:
        def unit(name: str, x: Any, stride: int = 1) -> Any:
            kernel = params[f"{name}_conv/kernel"].astype(self.dtype)
            pad = (kernel.shape[0] - 1) // 2
            x = conv(x, kernel, stride, ((pad, pad), (pad, pad)))
            if self.variant == _V1:
                x = x + params[f"{name}_conv/bias"].astype(self.dtype)
            return normalize(f"{name}_bn", x)

        x = jax.nn.relu(unit("conv1", image.astype(self.dtype), 2))
        x = max_pool(x, 3, 2, ((1, 1), (1, 1)))
        for block in self.blocks():
            shortcut = unit(f"{block.name}_0", x, block.stride) if block.projects else x
            x = jax.nn.relu(unit(f"{block.name}_1", x, block.strides[0]))
            x = jax.nn.relu(unit(f"{block.name}_2", x, block.strides[1]))
            x = jax.nn.relu(unit(f"{block.name}_3", x) + shortcut)
        x = jnp.mean(x, axis=(1, 2))
        return x @ params["predictions/kernel"].astype(self.dtype) + params[
            "predictions/bias"
        ].astype(self.dtype)
