"""Steps of fastai's optimizers, which are not PyTorch's and call no `mark_step`: a step ends where
the next batch goes to the device."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any


def apply(fastai_optimizer: ModuleType) -> None:
    """Let `Optimizer.step` of the module `fastai.optimizer` be counted where a program has imported
    torch_xla."""
    original = fastai_optimizer.Optimizer.step

    @functools.wraps(original)
    def step(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        steps = sys.modules.get("torch_xla._steps")  # missing: the real torch_xla, or none
        if steps is not None:
            steps.add("step")
            steps.note_step()
        return result

    fastai_optimizer.Optimizer.step = step
