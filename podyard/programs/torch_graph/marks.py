"""The sharding of each tensor that a program has marked, found by the tensor's memory.

A tensor and its aliases (`tensor.data`, `tensor.detach()`) have one sharding, as they have one
buffer on the devices. A weak reference to the memory keeps its address from being used again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.multiprocessing.reductions import StorageWeakRef

from podyard.programs.torch_graph.shardings import TensorSharding

_FIRST_SWEEP = 1_000  # annotations, before those of tensors that are gone are dropped


class _Annotation(NamedTuple):
    memory: StorageWeakRef
    shape: tuple[int, ...]
    sharding: TensorSharding


_annotations: dict[int, _Annotation] = {}
_sweep_at: list[int] = [_FIRST_SWEEP]


def annotate(tensor: Any, sharding: TensorSharding) -> None:
    storage = tensor.untyped_storage()
    annotation = _Annotation(StorageWeakRef(storage), tuple(tensor.shape), sharding)
    _annotations[storage._cdata] = annotation
    if len(_annotations) >= _sweep_at[0]:
        for key in [one for one in _annotations if _annotations[one].memory.expired()]:
            del _annotations[key]
        _sweep_at[0] = max(_FIRST_SWEEP, 2 * len(_annotations))


def sharding_of(tensor: Any) -> TensorSharding | None:
    mark = _annotations.get(tensor.untyped_storage()._cdata)
    if mark is None or mark.memory.expired() or mark.shape != tuple(tensor.shape):
        return None
    return mark.sharding


def clear(tensor: Any) -> None:
    _annotations.pop(tensor.untyped_storage()._cdata, None)
