"""SPMD: one process for each host, and tensors that are split over all devices of the slice."""

from __future__ import annotations

import os
import warnings

import torch
from torch_xla import _process, _steps

from podyard.programs.slice import devices_of
from podyard.programs.torch_graph import marks
from podyard.programs.torch_graph.shardings import TensorSharding


def turn_on() -> None:
    variable = _process.SPMD_VARIABLE
    if os.environ.get(variable) is not None:
        warnings.warn(
            f"{variable} is being deprecated. Use torch_xla.runtime.use_spmd() without setting "
            f"{variable} env-var.",
            stacklevel=3,
        )
    if _process.place().world > 1:
        raise RuntimeError(
            f"SPMD has one process for each host, and this is one of {_process.place().world}: "
            "call use_spmd() in a program that runs without torch_xla.launch, xmp.spawn and "
            "torchrun"
        )
    if not _process.is_spmd():
        os.environ[variable] = "1"
        _steps.restart()


def require() -> None:
    if not _process.is_spmd():
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
