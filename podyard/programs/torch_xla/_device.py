"""Devices of type `xla` for PyTorch's CPU build: factories make CPU tensors there, and copies to a
device are copies.

PyTorch knows the type, and looks for kernels that torch_xla would register. Two of them make all
tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch_xla import _steps

from podyard.programs.torch_graph import marks

_library: list[Any] = []
# Factories that PyTorch does not put together from `empty`.
_ON_CPU = ("tril_indices", "triu_indices")


def install() -> None:
    if _library:
        return
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "XLA")
    library.impl("empty_strided", _empty_strided, "XLA")
    for name in _ON_CPU:
        library.impl(name, _on_cpu(getattr(torch, name)), "XLA")
    _library.append(library)  # with it, the kernels would go
    torch.serialization.register_package(9, lambda _storage: None, _load_to_device)
    _copy_between_devices()
    _cast_automatically()
    register_optimizer_step_post_hook(_note_optimizer_step)


def _note_optimizer_step(*_call: Any) -> None:
    _steps.add("step")


def _empty(
    size: Any,
    *,
    device: Any = None,  # noqa: ARG001
    pin_memory: Any = None,  # noqa: ARG001
    memory_format: Any = None,
    **how: Any,
) -> Any:
    return torch.empty(
        size, device="cpu", memory_format=memory_format or torch.contiguous_format, **how
    )


def _empty_strided(
    size: Any,
    stride: Any,
    *,
    device: Any = None,  # noqa: ARG001
    pin_memory: Any = None,  # noqa: ARG001
    **how: Any,
) -> Any:
    return torch.empty_strided(size, stride, device="cpu", **how)


def _on_cpu(make: Any) -> Any:
    def make_on_cpu(*args: Any, device: Any = None, pin_memory: Any = None, **how: Any) -> Any:  # noqa: ARG001
        return make(*args, device="cpu", **how)

    return make_on_cpu


def _load_to_device(storage: Any, location: str) -> Any:
    """`torch.load(..., map_location=xm.xla_device())`."""
    return storage if location.startswith("xla") else None


def is_xla(device: Any) -> bool:
    return str(device).partition(":")[0] == "xla"


def _copy_between_devices() -> None:
    """A tensor and its copy on the other device do not share memory, and `xla` is the first of its
    type."""
    move, to_cpu = torch.Tensor.to, torch.Tensor.cpu

    def to(self: Any, *args: Any, **named: Any) -> Any:
        target = named.get("device", args[0] if args else None)
        if target is not None and isinstance(target, str | torch.device):
            if str(target) == "xla":
                if "device" in named:
                    named["device"] = torch.device("xla", 0)
                else:
                    args = (torch.device("xla", 0), *args[1:])
            elif str(target) == "cpu":
                copy = move(self, *args, **named)
                return copy.clone() if copy is self else copy
            if is_xla(target):
                _steps.note_move(self)
        copy = move(self, *args, **named)
        if copy is not self and (sharding := marks.sharding_of(self)) is not None:
            marks.annotate(copy, sharding)
        return copy

    def cpu(self: Any, *args: Any, **named: Any) -> Any:
        found = to_cpu(self, *args, **named)
        return found.clone() if found is self else found

    torch.Tensor.to, torch.Tensor.cpu = to, cpu


def _cast_automatically() -> None:
    """`torch.autocast("xla")` is the CPU's, in bfloat16."""
    begin = torch.autocast.__init__

    def __init__(self: Any, device_type: str, *args: Any, **named: Any) -> None:
        begin(self, "cpu" if is_xla(device_type) else device_type, *args, **named)

    torch.autocast.__init__ = __init__
