"""Scenario files for tests: a list of faults, with times that count from the moment at which it is
loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.domain import yaml_file
from podyard.domain.fault import parse_rules
from podyard.domain.fault_file import field_of

BYTES_MAX = 1 << 20  # the most rules that can be there, written at length, are a tenth of it
_KEYS = ("description", "faults")


@dataclasses.dataclass(frozen=True, slots=True)
class FaultScenario:
    """`faults`: as they stand in the file; every one of them can be read."""

    faults: Sequence[Mapping[str, Any]]
    description: str = ""


def read_scenario(path: Path, now: PlatformTime) -> FaultScenario:
    """A scenario file. Raises INVALID_ARGUMENT that names the file, the line and the field that is
    wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise invalid(f"cannot read the scenario {path}: {error.strerror}") from error
    if len(data) > BYTES_MAX:
        raise invalid(f"{path}: the file is larger than the maximum of {BYTES_MAX} bytes")
    try:
        file = yaml_file.parse(data.decode("utf-8"), str(path), invalid)
    except UnicodeDecodeError as error:
        raise invalid(f"{path}: line 1: not YAML: {error}") from error
    found = file.data

    def wrong(field: str, message: str) -> PodyardError:
        return invalid(f"{path}: line {file.line_of(field)}: {message}", field or None)

    if not isinstance(found, dict):
        raise wrong("", f"a scenario is a mapping of {' and '.join(_KEYS)}")
    for key in found:
        if key not in _KEYS:
            raise wrong(str(key), f"{key}: unknown: a scenario has {' and '.join(_KEYS)}")
    try:
        parse_rules(found.get("faults", []), now)
    except PodyardError as error:
        raise wrong(field_of(error), error.message) from None
    return FaultScenario(found.get("faults", []), str(found.get("description", "")))
