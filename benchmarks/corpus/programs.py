"""The programs by name. New ones are added at the end of their family; a name says what is
compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, sharding

from benchmarks.corpus import others, parallel, vision
from benchmarks.corpus.language import LARGE, MEDIUM, SEVEN_BILLION, SMALL, TINY, Size, Transformer
from benchmarks.corpus.layout import BF16, F32, I8, I32, Layout, Made

_P: Any = sharding.PartitionSpec


def _mesh(ways: str, **axes: int) -> Layout:
    return Layout(tuple(axes.items()), tuple(ways.split()))


DATA8 = _mesh("data", data=8)
FSDP8 = _mesh("fsdp", data=8)
TENSOR8 = _mesh("tensor", model=8)
EXPERT8 = _mesh("data expert", expert=8)

_LLAMA: dict[str, Any] = {"llama": True, "dtype": BF16}
_GROUPED = dataclasses.replace(SMALL, groups=2, inner=1408)
_GROUPED_MEDIUM = dataclasses.replace(MEDIUM, groups=4, inner=2816, layers=4)
_ONE_BILLION = Size(2048, 16, 32, 8192, 128256, 2048, 8)
_MIXTURE = dataclasses.replace(SMALL, layers=2, experts=8, inner=1024, vocabulary=4096)

PROGRAMS: dict[str, Callable[[], Made]] = {
    # GPT-like, one device: four sizes, written out and in a loop.
    "gpt-tiny-forward": lambda: Transformer(TINY).forward(8),
    "gpt-tiny-train-adam": lambda: Transformer(TINY).training(16),
    "gpt-small-train-sgd": lambda: Transformer(SMALL).training(8, "sgd"),
    "gpt-small-train-adam-scan": lambda: Transformer(SMALL, scan=True).training(8),
    "gpt-small-train-adam-scan-remat": lambda: Transformer(SMALL, scan=True,
        remat=True).training(16),
    "gpt-medium-forward": lambda: Transformer(MEDIUM, dtype=BF16).forward(4),
    "gpt-medium-train-scan": lambda: Transformer(MEDIUM, scan=True).training(4),
    "gpt-large-forward-scan": lambda: Transformer(LARGE, scan=True, dtype=BF16).forward(2),
    "gpt-large-train-scan-remat": lambda: Transformer(LARGE, scan=True, remat=True,
        dtype=BF16).training(2, "sgd"),
    # The same over several devices.
    "gpt-small-train-data8": lambda: Transformer(SMALL, DATA8).training(64),
    "gpt-small-train-fsdp8": lambda: Transformer(SMALL, FSDP8).training(64),
    "gpt-small-train-tensor8": lambda: Transformer(SMALL, TENSOR8).training(16),
    "gpt-small-train-data2-tensor4": lambda: Transformer(SMALL,
        _mesh("data tensor", data=2, model=4)).training(16),
    "gpt-tiny-train-data8-sgd": lambda: Transformer(TINY, DATA8).training(32, "sgd"),
    "gpt-tiny-forward-tensor4-data2": lambda: Transformer(TINY,
        _mesh("data tensor", model=4, data=2)).forward(16),
    "gpt-tiny-train-fsdp4-tensor2": lambda: Transformer(TINY,
        _mesh("fsdp tensor", data=4, model=2)).training(32),
    "gpt-small-forward-tensor8-sequence": lambda: Transformer(SMALL,
        _mesh("tensor sequence", model=8)).forward(4),
    "gpt-tiny-train-tensor8-sequence": lambda: Transformer(
        dataclasses.replace(TINY, heads=8), _mesh("tensor sequence", model=8)
    ).training(8, "sgd"),
    "gpt-medium-train-fsdp8-scan": lambda: Transformer(MEDIUM, FSDP8, scan=True).training(16),
    "gpt-medium-train-data4-tensor8-scan": lambda: Transformer(
        MEDIUM, _mesh("data tensor", data=4, model=8), scan=True
    ).training(32),
    "gpt-large-train-fsdp8-tensor4-scan-remat": lambda: Transformer(
        LARGE, _mesh("fsdp tensor", data=8, model=4), scan=True, remat=True
    ).training(32),
    # Llama-like: grouped keys, rotary positions, a cache.
    "llama-small-forward": lambda: Transformer(_GROUPED, **_LLAMA).forward(8),
    "llama-small-train-adam": lambda: Transformer(dataclasses.replace(_GROUPED, layers=2),
        **_LLAMA).training(8),
    "llama-small-decode": lambda: Transformer(dataclasses.replace(SMALL, groups=2),
        **_LLAMA).decode(8, 1024),
    "llama-small-prefill": lambda: Transformer(_GROUPED, **_LLAMA).decode(2, 1024, 512),
    "llama-medium-train-scan": lambda: Transformer(_GROUPED_MEDIUM, scan=True, **_LLAMA).training(4,
        "sgd"),
    "llama-medium-decode-scan": lambda: Transformer(_GROUPED_MEDIUM, scan=True, **_LLAMA).decode(16,
        2048),
    "llama-1b-decode-scan": lambda: Transformer(_ONE_BILLION, scan=True, **_LLAMA).decode(1, 2048),
    "llama-1b-prefill-scan": lambda: Transformer(_ONE_BILLION, scan=True, **_LLAMA).decode(1, 2048,
        1024),
    "llama-small-decode-tensor8": lambda: Transformer(
        dataclasses.replace(_GROUPED, groups=8), TENSOR8, **_LLAMA
    ).decode(8, 2048),
    "llama-medium-prefill-tensor8": lambda: Transformer(
        dataclasses.replace(_GROUPED_MEDIUM, groups=8, layers=2), TENSOR8, **_LLAMA
    ).decode(4, 1024, 512),
    "llama-1b-decode-tensor8-scan": lambda: Transformer(_ONE_BILLION, TENSOR8, scan=True,
        **_LLAMA).decode(16, 4096),
    "llama-1b-decode-data8-scan": lambda: Transformer(_ONE_BILLION, DATA8, scan=True,
        **_LLAMA).decode(64, 2048),
    "llama-small-train-fsdp8": lambda: Transformer(
        dataclasses.replace(_GROUPED, layers=2, groups=0), FSDP8, **_LLAMA
    ).training(32, "sgd"),
    "llama-medium-train-fsdp4-tensor2-scan": lambda: Transformer(
        _GROUPED_MEDIUM, _mesh("fsdp tensor", data=4, model=2), scan=True, **_LLAMA
    ).training(16),
    "llama-7b-train-fsdp64-scan-remat": lambda: Transformer(
        SEVEN_BILLION, _mesh("fsdp", data=64), llama=True, scan=True, remat=True
    ).training(128),
    # Mixtures of experts.
    "mixture-small-forward": lambda: Transformer(_MIXTURE, llama=True).forward(8),
    "mixture-small-train-sgd": lambda: Transformer(_MIXTURE).training(8, "sgd"),
    "mixture-small-forward-expert8": lambda: Transformer(_MIXTURE, EXPERT8).forward(16),
    "mixture-small-train-data8": lambda: Transformer(_MIXTURE, DATA8).training(16, "sgd"),
    "mixture-decode": lambda: Transformer(dataclasses.replace(_MIXTURE, groups=2),
        **_LLAMA).decode(16, 512),
    "experts-by-hand-8": lambda: parallel.experts(8, 8192, 512, 2048),
    # Recommendation.
    "dlrm-small-forward": lambda: others.dlrm([10000] * 8, 64, 2048, ""),
    "dlrm-small-train": lambda: others.dlrm([10000] * 8, 64, 2048),
    "dlrm-large-tables-train": lambda: others.dlrm([1000000, 200000, 50000, 3000], 128, 4096),
    "dlrm-train-data8": lambda: others.dlrm([20000] * 4, 64, 8192, "sgd", DATA8),
    "dlrm-train-rows-split8": lambda: others.dlrm([80000] * 4, 64, 4096, "sgd", TENSOR8),
    "two-tower-contrastive-8": lambda: parallel.contrastive(8, 4096, 1024),
    # Diffusion.
    "unet-forward": lambda: vision.UNet(64, 3, 8, 32).forward(),
    "unet-large-forward": lambda: vision.UNet(128, 3, 4, 64).forward(),
    "unet-train": lambda: vision.UNet(64, 2, 16, 32, 3).training(),
    "unet-train-data8": lambda: vision.UNet(64, 2, 64, 32, 4, DATA8).training(),
    "autoencoder-train": lambda: vision.autoencoder(32, 64, 32),
    # Convolution networks.
    "resnet-small-train": lambda: vision.Stages("plain", (64, 128, 256), 2, 64, 64).training(),
    "resnet-forward-224": lambda: vision.Stages("plain", (64, 128, 256, 512), 2, 16, 224,
        (7, 4)).forward(),
    "resnet-train-data8": lambda: vision.Stages("plain", (64, 128), 2, 256, 64,
        layout=DATA8).training(),
    "resnext-forward": lambda: vision.Stages("grouped", (128, 256), 2, 32, 64).forward(),
    "resnext-train": lambda: vision.Stages("grouped", (128, 256), 1, 32, 64).training(),
    "mobilenet-forward": lambda: vision.Stages("depthwise", (32, 64, 128), 2, 32, 96).forward(),
    "mobilenet-train": lambda: vision.Stages("depthwise", (32, 64), 1, 32, 64).training(),
    "convnext-forward": lambda: vision.Stages("next", (96, 192, 384), 2, 16, 128, (4, 4)).forward(),
    "convnext-train": lambda: vision.Stages("next", (96, 192), 1, 16, 128, (4, 4)).training("adam"),
    "vgg-cifar-train": lambda: vision.vgg((64, 128, 256), 128, 32),
    "lenet-one-channel-train": lambda: vision.vgg((16, 32), 256, 28, 1, 5),
    "video-forward": lambda: vision.video(4, 16, 64, (32, 64, 128), forward=True),
    "video-train": lambda: vision.video(4, 16, 64, (32, 64)),
    "vit-small-train-scan": lambda: vision.Vit(384, 6, 6, 16).training(),
    "vit-base-train-data8-scan": lambda: vision.Vit(768, 12, 12, 64, layout=DATA8).training(),
    "convolution-depthwise-wide": lambda: vision.convolution((16, 56, 56, 256), (7, 7, 1, 256)),
    "convolution-one-channel": lambda: vision.convolution((64, 128, 128, 1), (5, 5, 1, 32)),
    "convolution-grouped-kernel-gradient": lambda: vision.convolution((32, 28, 28, 256),
        (3, 3, 8, 256), 1, "kernel"),
    "convolution-stem-input-gradient": lambda: vision.convolution((32, 112, 112, 3), (7, 7, 3, 64),
        2, "input"),
    "convolution-3d": lambda: vision.convolution((4, 16, 56, 56, 32), (3, 3, 3, 32, 64)),
    # Recurrent networks.
    "lstm-train": lambda: others.recurrent("lstm", 512, 64, 32),
    "lstm-forward-long": lambda: others.recurrent("lstm", 1024, 512, 16, forward=True),
    "gru-train": lambda: others.recurrent("gru", 256, 128, 64),
    "state-space-forward": lambda: others.state_space(256, 16, 512, 4),
    "state-space-gradient": lambda: others.state_space(128, 8, 256, 8, gradient=True),
    # Optimizers.
    "adam-tree": lambda: others.adam_tree([(1024, 4096), (4096, 1024), (32000, 512), (1024,),
        (3, 3, 64, 128)]),
    "adam-tree-clipped-fsdp8": lambda: others.adam_tree([(4096, 4096)] * 4 + [(4096,)] * 4, FSDP8,
        clip=True),
    "adafactor": lambda: others.adafactor([(1024, 4096), (4096, 1024), (8192, 1024)]),
    "lion": lambda: others.lion([(2048, 8192), (8192, 2048), (2048,)]),
    "perceptron-train-momentum": lambda: others.perceptron((784, 1024, 1024, 10), 256, "momentum"),
    "perceptron-train-data8": lambda: others.perceptron((1024, 4096, 4096, 1024), 2048, "adam",
        DATA8),
    "perceptron-train-data4-tensor2": lambda: others.perceptron(
        (1024, 8192, 1024), 1024, "sgd", _mesh("data tensor", data=4, model=2)
    ),
    "perceptron-train-data8-tensor4": lambda: others.perceptron(
        (2048, 8192, 2048, 8192, 2048), 4096, "momentum", _mesh("data tensor", data=8, model=4)
    ),
    "perceptron-train-fsdp32": lambda: others.perceptron((2048, 8192, 2048), 4096, "adam",
        _mesh("fsdp", data=32)),
    # Lookups.
    "table-rows-large": lambda: others.rows_of_table(128256, 4096, 8),
    "table-rows-many": lambda: others.rows_of_table(32000, 512, 16384, F32),
    "table-rows-split8": lambda: others.rows_of_table(128000, 512, 2048, BF16, TENSOR8),
    "embedding-step": lambda: others.embedding_step(50000, 256, 4096),
    "embedding-step-data8": lambda: others.embedding_step(50000, 128, 16384, DATA8),
    "scatter-add": lambda: others.scattered(100000, 128, 8192),
    "cache-update-one": lambda: others.cache_update((16, 2048, 8, 128), 1),
    "cache-update-many": lambda: others.cache_update((8, 4096, 8, 128), 256),
    "graph-layer": lambda: others.segments(10000, 80000, 128),
    # Sorting and sums along an axis.
    "sort-rows": lambda: others.on_array(lambda x: jnp.sort(x, -1), (256, 4096)),
    "top-k": lambda: others.on_array(lambda x: lax.top_k(x, 40), (16, 32000)),
    "cumulative-sums": lambda: others.on_array(lambda x: jnp.cumsum(x, 1), (64, 4096)),
    "associative-scan": lambda: others.on_array(
        lambda a,
        b: lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b), axis=1),
        (16, 2048, 128),
        (16, 2048, 128),
    ),
    "nucleus-sampling": lambda: others.nucleus(8, 32000),
    # Narrow types.
    "int8-product": lambda: others.narrow_product(1024, 4096, 4096, I8, I32),
    "fp8-product": lambda: others.narrow_product(2048, 2048, 4096, jnp.float8_e4m3fn, F32),
    "int8-weights": lambda: others.narrow_weights(64, 4096, 4096, 3),
    # Loops and hand-written kernels of attention.
    "power-iteration": lambda: others.power_iteration(4096, 50),
    "streamed-attention": lambda: others.streamed_attention(2, 8, 4096, 64, 512),
    "attention-dropout": lambda: others.on_array(
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
        *([(4, 1024, 8, 64)] * 3), dtype=BF16
    ),
    # Collectives by hand.
    "ring-attention-8": lambda: parallel.ring_attention(8, 2, 8, 4096, 64),
    "pipeline-8-forward": lambda: parallel.pipeline(8, 512, 16, 16),
    "pipeline-8-gradient": lambda: parallel.pipeline(8, 512, 16, 8, gradient=True),
    "perceptron-sums-by-hand-8": lambda: parallel.data_sums(8, (1024, 2048, 2048, 256), 1024),
    "gathered-weights-by-hand-8": lambda: parallel.gathered_weights(8, 2048, 512, 3),
    "gathered-weights-by-hand-32": lambda: parallel.gathered_weights(32, 2048, 2048, 4),
    "sum-over-4-of-32": lambda: parallel.collective(
        lambda x: lax.psum(x, "model"), (("data", 8), ("model", 4)), (8192, 4096),
        _P("data", "model"), _P("data", None)
    ),
    "gather-over-8-of-32": lambda: parallel.collective(
        lambda x: lax.all_gather(x, "data", tiled=True),
        (("data", 8), ("model", 4)),
        (8192, 4096),
        _P("data", "model"),
        _P(None, "model"),
    ),
    "scatter-over-8": lambda: parallel.collective(
        lambda x: lax.psum_scatter(x, "data", tiled=True), (("data", 8),), (8192, 2048),
        _P(None, "data"), _P("data")
    ),
}  # fmt: skip

_LATER = ("v4", "v5p", "v6e")


def wanted(name: str) -> tuple[str, ...]:
    """The generations that a program is recorded for: v3 and v5e, and in turn one of the others."""
    place = list(PROGRAMS).index(name) % 4
    return ("v3", "v5e", *(() if place == len(_LATER) else (_LATER[place],)))
