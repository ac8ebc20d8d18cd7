"""Metrics that a user's program prints: a line of JSON with its step and numbers by name, {"step":
20, "loss": 0.5}."""

from __future__ import annotations

import json
import math
from typing import Any

METRICS_MAX = 64  # of one line
NAME_CHARACTERS_MAX = 64
STEP_MAX = 2**31 - 1


def read(line: str) -> tuple[int, dict[str, float]] | None:
    """(step, numbers by name) of a line; None for any other line. Objects inside give NAME/NAME;
    what is not a finite number is left out."""
    text = line.strip()
    if not (text.startswith("{") and text.endswith("}") and '"step"' in text):
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    step = said.pop("step", None)
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= STEP_MAX:
        return None
    found: dict[str, float] = {}
    _collect(said, "", found)
    return (step, found) if found else None


def _collect(said: dict[str, Any], parent: str, found: dict[str, float]) -> None:
    for name, value in said.items():
        path = parent + name
        if isinstance(value, dict) and not parent:
            _collect(value, f"{path}/", found)
        elif (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and len(path) <= NAME_CHARACTERS_MAX
        ):
            number = _finite(value)
            if number is not None and len(found) < METRICS_MAX:
                found[path] = number


def _finite(value: int | float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
