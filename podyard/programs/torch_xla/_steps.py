"""The steps of this process, where a run asks for them: those of the first process of each host."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from torch_xla import _process

from podyard.programs import slice as slices

_steps: dict[int, Any] = {}  # by process: a fork begins with its own


def steps() -> Any:
    """None: nothing is recorded."""
    own = os.getpid()
    if own not in _steps:
        folder = os.environ.get(slices.RUN_VARIABLE)
        if folder and _process.place().local_ordinal == 0:
            from podyard.programs.records import recorder_of
            from podyard.programs.torch_steps import TorchSteps

            of = _process.slice_of()
            recorder = recorder_of(Path(folder), of.process_index)
            is_spmd = _process.is_spmd()
            devices = len(slices.devices_of(of)) if is_spmd else _process.place().world
            _steps[own] = TorchSteps(recorder, devices, is_spmd)
        else:
            _steps[own] = None
    return _steps[own]


def end() -> None:
    if (found := steps()) is not None:
        found.end()


def add(event: str) -> None:
    if (found := steps()) is not None:
        found.add(event)


def note_move(tensor: Any) -> None:
    if (found := steps()) is not None:
        found.begin_batch(f"{tensor.dtype}{list(tensor.shape)}")


def restart() -> None:
    """From here on, steps are programs for all devices of the slice."""
    if (found := _steps.pop(os.getpid(), None)) is not None:
        found.stop()


def constrain(tensor: Any, sharding: Any) -> None:
    if (found := steps()) is not None:
        found.constrain(tensor, sharding)


def note_step() -> None:
    if (found := steps()) is not None:
        found.step()


def pause() -> Any:
    found = steps()
    return contextlib.nullcontext() if found is None else found.pause()


def element(tensor: Any) -> str:
    """As StableHLO writes the type of its numbers."""
    from podyard.programs.torch_steps import ELEMENTS

    return ELEMENTS.get(tensor.dtype, "f32")
