"""torch_xla over a CPU build of torch: what Podyard gives a program where the real package is not
installed.

A device of type `xla` is asked for and printed as one. Tensors that are made on it, or moved to it,
are CPU tensors. Each core of the slice is a process. What PyTorch computes has the bits of PyTorch
on a CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch_xla import _device, _process
from torch_xla.runtime import xla_device
from torch_xla.version import __version__

from podyard.programs.say import say_once

__all__ = [
    "__version__",
    *(
        "compile",
        "device",
        "device_count",
        "devices",
        "launch",
        "manual_seed",
        "real_devices",
        "step",
        "sync",
    ),
]

TESTED = ("2.13.", "2.14.")

_device.install()
if not torch.__version__.startswith(TESTED):
    tested = " and ".join(one.rstrip(".") for one in TESTED)
    say_once(f"PyTorch {torch.__version__} was not tested: {tested} were")


def __getattr__(name: str) -> Any:
    if name != "_XLAC":
        raise AttributeError(f"module 'torch_xla' has no attribute {name!r}")
    from importlib import import_module

    return import_module("torch_xla._XLAC")


def device(index: int | None = None) -> torch.device:
    return xla_device(index)


def devices() -> list[torch.device]:
    """Those that this process can address."""
    count = 1 if _process.place().spawned else len(_process.host_devices())
    return [_process.device(number) for number in range(count)]


def real_devices() -> list[str]:
    return [f"TPU:{device.index}" for device in devices()]


def device_count() -> int:
    return len(devices())


def sync(wait: bool = False, reset_scope: bool = True) -> None:  # noqa: ARG001
    """The end of a step. Nothing is left to compute: PyTorch has computed each operation when it
    was called."""
    from torch_xla.core import xla_model

    xla_model.mark_step()


@contextlib.contextmanager
def step() -> Iterator[None]:
    sync()
    try:
        yield
    finally:
        sync()


def compile(f: Callable[..., Any] | None = None, full_graph: bool = False, **_options: Any) -> Any:  # noqa: ARG001
    """As a decorator, as a context, or with a function: each call is a step."""
    if f is None:
        return step()

    def call_as_step(*args: Any, **named: Any) -> Any:
        with step():
            return f(*args, **named)

    return call_as_step


def manual_seed(seed: int, device: torch.device | None = None) -> None:
    from torch_xla.core import xla_model

    xla_model.set_rng_state(seed, device)


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> Any:
    """A process for each core of this host; under torchrun, which has started them, `fn` runs
    here."""
    from torch_xla.distributed import xla_multiprocessing

    place = _process.place()
    if place.spawned:
        return fn(place.local_ordinal, *args)
    return xla_multiprocessing.spawn(
        fn, args, 1 if debug_single_process else None, start_method=start_method
    )
