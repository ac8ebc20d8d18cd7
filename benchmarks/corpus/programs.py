"""The programs by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from benchmarks.corpus.language import MEDIUM, SMALL, TINY, Transformer
from benchmarks.corpus.layout import BF16, Layout, Made

DATA8 = Layout((("data", 8),), ("data",))
FSDP8 = Layout((("data", 8),), ("fsdp",))
TENSOR8 = Layout((("model", 8),), ("tensor",))
DATA2_TENSOR4 = Layout((("data", 2), ("model", 4)), ("data", "tensor"))
FSDP4_TENSOR2 = Layout((("data", 4), ("model", 2)), ("fsdp", "tensor"))

_LLAMA: dict[str, Any] = {"llama": True, "dtype": BF16}

PROGRAMS: dict[str, Callable[[], Made]] = {
    "gpt-tiny-forward": lambda: Transformer(TINY).forward(8),
    "gpt-tiny-train-adam": lambda: Transformer(TINY).training(16),
    "gpt-small-train-sgd": lambda: Transformer(SMALL).training(8, "sgd"),
    "gpt-small-train-adam-scan": lambda: Transformer(SMALL, scan=True).training(8),
    "gpt-medium-forward": lambda: Transformer(MEDIUM, dtype=BF16).forward(4),
    "gpt-small-train-data8": lambda: Transformer(SMALL, DATA8).training(64),
    "gpt-small-train-fsdp8": lambda: Transformer(SMALL, FSDP8).training(64),
    "gpt-small-train-tensor8": lambda: Transformer(SMALL, TENSOR8).training(16),
    "gpt-small-train-data2-tensor4": lambda: Transformer(SMALL, DATA2_TENSOR4).training(16),
    "llama-small-decode": lambda: Transformer(dataclasses.replace(SMALL, groups=2), **_LLAMA).decode(8, 1024),
}


def wanted(name: str) -> tuple[str, ...]:
    """The generations that a program is recorded for."""
    return () if name not in PROGRAMS else ("v3", "v5e")
