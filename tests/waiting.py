"""Waiting in tests: limits that grow with the slowness of the machine.

Machines differ by a factor of three, and other programs may use them. The limits in tests are those
of a machine on which `podyard up` takes REFERENCE_UP_SECONDS; `patient` scales them. conftest.py
measures the factor once, at the start of a run with several workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

SLOWNESS_VARIABLE = "PODYARD_TEST_SLOWNESS"
# `podyard up --detach` on two idle cores of 2026 (AMD EPYC with AVX-512)
REFERENCE_UP_SECONDS = 2.5
SLOWNESS_MAX = 8.0  # beyond this the machine is broken, and tests should say so
_POLL_SECONDS = 0.05


def slowness() -> float:
    """Return how many times longer than the reference this machine takes, from 1 to
    SLOWNESS_MAX."""
    return float(os.environ.get(SLOWNESS_VARIABLE, "1"))


def is_measured() -> bool:
    return SLOWNESS_VARIABLE in os.environ


def set_slowness(up_seconds: float) -> None:
    """Sets the factor for this process and those that it starts, from the time that one `podyard
    up` took."""
    os.environ[SLOWNESS_VARIABLE] = (
        f"{min(max(1.0, up_seconds / REFERENCE_UP_SECONDS), SLOWNESS_MAX):.2f}"
    )


def patient(seconds: float) -> float:
    """The limit for this machine."""
    return seconds * slowness()


def until(ask: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return what `ask` returns once it is not None; fails after `seconds`, scaled to this
    machine."""
    deadline = time.monotonic() + patient(seconds)
    while (answer := ask()) is None:
        assert time.monotonic() < deadline, f"{what}: not within {patient(seconds):.0f} s"
        time.sleep(_POLL_SECONDS)
    return answer
