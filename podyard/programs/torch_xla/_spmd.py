"""SPMD: one process for each host, and tensors that are split over all devices of the slice."""

from __future__ import annotations

import os
import warnings

import torch
from torch_xla import _process, _steps

from podyard.programs.slice import devices_of
from podyard.programs.torch_graph import marks
from podyard.programs.torch_graph.shardings import TensorSharding

_VARIABLE = "XLA_USE_SPMD"  # torch_xla reads it, too
_TRUE = ("1", "TRUE", "ON", "YES", "Y")


def is_on() -> bool:
    return os.environ.get(_VARIABLE, "").upper() in _TRUE


def turn_on() -> None:
    if os.environ.get(_VARIABLE) is not None:
        warnings.warn(
            f"{_VARIABLE} is being deprecated. Use torch_xla.runtime.use_spmd() without setting "
            f"{_VARIABLE} env-var.",
            stacklevel=3,
        )
    if _process.place().world > 1:
        raise RuntimeError(
            f"SPMD has one process for each host, and this is one of {_process.place().world}: "
            "call use_spmd() in a program that runs without torch_xla.launch, xmp.spawn and "
            "torchrun"
        )
    os.environ[_VARIABLE] = "1"
    _steps.partition()


def require() -> None:
    if not is_on():
        raise RuntimeError(
            "shardings need SPMD: call torch_xla.runtime.use_spmd() at the start of the program"
        )


def device_count() -> int:
    return len(devices_of(_process.slice_of()))


def mark(tensor: torch.Tensor, sharding: TensorSharding) -> None:
    marks.annotate(tensor, sharding)
    _steps.constrain(tensor, sharding)


def local_devices() -> list[int]:
    """Numbers of this host's devices, among all."""
    of = _process.slice_of()
    return [
        number
        for number, device in enumerate(devices_of(of))
        if device.process_index == of.process_index
    ]
