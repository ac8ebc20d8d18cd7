"""torch_xla.debug.profiler: names are taken, and nothing is recorded. `podyard run --trace` writes
a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def start_server(port: int, only_on_master: bool = True) -> object:  # noqa: ARG001
    return object()


def trace(service_addr: str, logdir: str, **_options: Any) -> None:
    """No server has anything to trace."""


trace_detached = trace


def start_trace(log_dir: str) -> None:
    """Nothing is recorded."""


def stop_trace() -> None:
    """Nothing was recorded."""


@contextlib.contextmanager
def Trace(name: str, **_details: Any) -> Iterator[None]:  # noqa: ARG001
    yield


@contextlib.contextmanager
def StepTrace(name: str, **_details: Any) -> Iterator[None]:  # noqa: ARG001
    from torch_xla.core import xla_model

    yield
    xla_model.mark_step()


def trace_me(scope: str) -> Any:
    def decorate(function: Any) -> Any:
        return Trace(scope)(function)

    return decorate
