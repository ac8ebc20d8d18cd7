"""ResNet v1.5: the stride of a bottleneck is in its 3x3 convolution.

Source: He et al., arXiv 1512.03385, section 4.1 and table 1; training as in Goyal et al., arXiv
1706.02677.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

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
_CLASSES = 1000
_EXPANSION = 4
_EPSILON = 1e-5
_KEPT = 0.9  # share of a running average that a step leaves
_SMOOTHING = 0.1
_MOMENTUM = 0.9
_WEIGHT_DECAY = 1e-4
_STAIRS_AT_EPOCHS = (30, 60, 80)
_RATE_BATCH = 256


def resnet_50(arguments: Mapping[str, Any]) -> Model:
    """Arguments as in the manifest of the program."""
    network = ResNet(
        _STAGES, _WIDTH, _CLASSES, jnp.dtype(arguments["dtype"]), arguments["batchNormGroups"]
    )
    side = arguments["imageSize"]

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
        # Centred bytes, in the type that is computed with: an input pipeline converts them before
        # they are sent.
        features={
            "image": pixels((side, side, 3), network.dtype, -0.5),
            "label": numbers_below(_CLASSES),
        },
        loss=network.loss,
        optimizer=optimizer,
        example_count=_IMAGENET_EXAMPLES,
    )


@dataclasses.dataclass(frozen=True)
class ResidualBlock:
    """A bottleneck: 1x1 to `inner`, 3x3 with `stride`, 1x1 to `outer` channels."""

    name: str
    entering: int
    inner: int
    outer: int
    stride: int

    @property
    def projects(self) -> bool:
        """Whether the shortcut needs a convolution to fit."""
        return self.stride != 1 or self.entering != self.outer


@dataclasses.dataclass(frozen=True)
class ResNet:
    """`stages`: bottlenecks per stage; `width`: channels behind the first convolution. Parameters
    are float32 by name: "…/kernel", "…/scale", "…/bias"; statistics "…/mean" and "…/variance"."""

    stages: tuple[int, ...]
    width: int
    classes: int
    dtype: Any
    batch_norm_groups: int = 1

    def blocks(self) -> Iterator[ResidualBlock]:
        entering = self.width
        for stage, count in enumerate(self.stages):
            inner = self.width * 2**stage
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                yield ResidualBlock(
                    f"stage{stage + 1}/block{index + 1}",
                    entering,
                    inner,
                    _EXPANSION * inner,
                    stride,
                )
                entering = _EXPANSION * inner

    def params(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}

        def convolution(
            name: str, side: int, entering: int, leaving: int, scale: float = 1.0
        ) -> None:
            tensors[f"{name}/kernel"] = Tensor((side, side, entering, leaving), he_normal)
            tensors[f"{name}/scale"] = Tensor((leaving,), constant(scale))
            tensors[f"{name}/bias"] = Tensor((leaving,), zeros)

        convolution("stem", 7, 3, self.width)
        features = self.width
        for block in self.blocks():
            convolution(f"{block.name}/conv1", 1, block.entering, block.inner)
            convolution(f"{block.name}/conv2", 3, block.inner, block.inner)
            # A block starts as its shortcut (Goyal et al., section 5.1).
            convolution(f"{block.name}/conv3", 1, block.inner, block.outer, scale=0.0)
            if block.projects:
                convolution(f"{block.name}/shortcut", 1, block.entering, block.outer)
            features = block.outer
        tensors["dense/kernel"] = Tensor((features, self.classes), normal(0.01))
        tensors["dense/bias"] = Tensor((self.classes,), zeros)
        return tensors

    def statistics(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, tensor in self.params().items():
            if name.endswith("/scale"):
                layer = name.removesuffix("/scale")
                tensors |= {
                    f"{layer}/mean": Tensor(tensor.shape, zeros),
                    f"{layer}/variance": Tensor(tensor.shape, ones),
                }
        return tensors

    def loss(
        self, params: Any, statistics: Any, batch: Any, _key: Any
    ) -> tuple[Any, tuple[Mapping[str, Any], Any]]:
        """Of batch["image"] [n, side, side, 3] and batch["label"] [n]; the batch's own statistics
        normalize it."""
        moved: dict[str, Any] = {}
        groups = self.batch_norm_groups

        def unit(name: str, x: Any, stride: int = 1) -> Any:
            kernel = params[f"{name}/kernel"].astype(self.dtype)
            pad = (kernel.shape[0] - 1) // 2
            x = conv(x, kernel, stride, ((pad, pad), (pad, pad)))
            x, mean, variance = batch_norm(
                x, params[f"{name}/scale"], params[f"{name}/bias"], _EPSILON, groups
            )
            for part, value in (("mean", mean), ("variance", variance)):
                before = statistics[f"{name}/{part}"]
                moved[f"{name}/{part}"] = _KEPT * before + (1 - _KEPT) * value
            return x

        x = jax.nn.relu(unit("stem", batch["image"].astype(self.dtype), 2))
        x = max_pool(x, 3, 2, ((1, 1), (1, 1)))
        for block in self.blocks():
            shortcut = unit(f"{block.name}/shortcut", x, block.stride) if block.projects else x
            x = jax.nn.relu(unit(f"{block.name}/conv1", x))
            x = jax.nn.relu(unit(f"{block.name}/conv2", x, block.stride))
            x = jax.nn.relu(unit(f"{block.name}/conv3", x) + shortcut)
        x = jnp.mean(x, axis=(1, 2))
        logits = x @ params["dense/kernel"].astype(self.dtype) + params["dense/bias"].astype(
            self.dtype
        )
        value, accuracy = softmax_cross_entropy(
            logits.astype(jnp.float32), batch["label"], _SMOOTHING
        )
        return value, ({"accuracy": accuracy}, moved)
