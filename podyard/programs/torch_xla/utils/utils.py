"""torch_xla.utils.utils: what examples take from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any


class SampleGenerator:
    """The same batch, `sample_count` times."""

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data = data
        self._sample_count = sample_count

    def __iter__(self) -> Iterator[Any]:
        return iter([self._data] * self._sample_count)

    def __len__(self) -> int:
        return self._sample_count


class DataWrapper:
    """The source of a program's batches."""


def getenv_as(name: str, type: Callable[[str], Any], defval: Any = None) -> Any:
    value = os.environ.get(name)
    return defval if value is None else type(value)
