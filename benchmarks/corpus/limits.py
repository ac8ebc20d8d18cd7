"""Sharded programs whose size is chosen so that their need of memory lies around what a device
has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.corpus import others, parallel
from benchmarks.corpus.language import SEVEN_BILLION, SMALL, Transformer
from benchmarks.corpus.layout import BF16, Layout, Made

PREFIX = "limit-"
# Shares of the memory that a program is made to need, on both sides of the limit.
SHARES = (0.85, 0.92, 1.08, 1.2)
# How near a program has to come to its share, and how often another size is tried for that.
NEAR = 0.04
TRIES = 4
_DATA, _FSDP = Layout((("data", 8),), ("data",)), Layout((("data", 8),), ("fsdp",))
_TENSOR, _BOTH = (
    Layout((("model", 8),), ("tensor",)),
    Layout((("data", 2), ("model", 4)), ("data", "tensor")),
)
_FULLY = Layout((("data", 4), ("model", 2)), ("fsdp", "tensor"))
_WIDE = (4096, 16384, 4096)
_SIZE = dataclasses.replace(SMALL, layers=4, vocabulary=4096)


def _attention(size: int) -> Made:
    def run(query: Any, key: Any, value: Any) -> Any:
        scores = jnp.einsum("bhtd,bhsd->bhts", query, key) * 0.125
        return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(scores), value)

    return Made(
        run, (_BOTH.array((8 * size, 16, 2048, 64), "batch heads . .", BF16),) * 3, (), _BOTH
    )


def _seven_billion(scan: bool) -> Callable[[int], Made]:
    fully = Layout((("data", 64),), ("fsdp",))
    return Transformer(SEVEN_BILLION, fully, llama=True, scan=scan, remat=True).training


# Each by its size: mostly the batch in steps of 8.
FAMILIES: dict[str, Callable[[int], Made]] = {
    "perceptron-data8": lambda n: others.perceptron(_WIDE, 1024 * n, "adam", _DATA),
    "perceptron-fsdp8": lambda n: others.perceptron(
        (4096, 16384, 16384, 4096), 1024 * n, "adam", _FSDP
    ),
    "perceptron-data2-tensor4": lambda n: others.perceptron(_WIDE, 512 * n, "sgd", _BOTH),
    "gpt-scan-fsdp8": lambda n: Transformer(_SIZE, _FSDP, scan=True).training(8 * n, "sgd"),
    "gpt-scan-remat-fsdp4-tensor2": lambda n: Transformer(
        _SIZE, _FULLY, scan=True, remat=True
    ).training(8 * n),
    "gpt-data2-tensor4": lambda n: Transformer(
        dataclasses.replace(_SIZE, layers=2), _BOTH
    ).training(8 * n, "sgd"),
    "llama-decode-tensor8": lambda n: Transformer(
        dataclasses.replace(_SIZE, groups=8), _TENSOR, llama=True, scan=True, dtype=BF16
    ).decode(8 * n, 4096),
    "llama-decode-data8": lambda n: Transformer(
        dataclasses.replace(_SIZE, groups=2), _DATA, llama=True, scan=True, dtype=BF16
    ).decode(8 * n, 2048),
    "adam-fsdp8": lambda n: others.adam_tree([(1024 * n, 4096)] * 2, _FSDP),
    "adam-clipped-fsdp8": lambda n: others.adam_tree([(1024 * n, 4096)] * 3, _FSDP, clip=True),
    "embedding-rows-split8": lambda n: others.embedding_step(8192 * n, 512, 65536, _TENSOR),
    "attention-data2-tensor4": _attention,
    "gathered-weights-by-hand-8": lambda n: parallel.gathered_weights(8, 4096, 1024 * n, 4),
    "ring-attention-8": lambda n: parallel.ring_attention(8, n, 8, 16384, 64),
    "dlrm-rows-split8": lambda n: others.dlrm([8192 * n] * 4, 128, 8192, "sgd", _TENSOR),
}

# Programs of seven billion parameters, by their batch. The compiler takes minutes for those that
# fit.
LARGE = {"llama-7b-fsdp64-scan": _seven_billion(True), "llama-7b-fsdp64": _seven_billion(False)}


def build(name: str) -> Made:
    """The program of a name like `limit-adam-fsdp8-120`."""
    family, _, size = name.removeprefix(PREFIX).rpartition("-")
    return (FAMILIES | LARGE)[family](int(size))
