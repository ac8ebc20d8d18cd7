"""The fleet that a command names."""

from __future__ import annotations

from pathlib import Path

from podyard.base.errors import failed_precondition
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import load_fleet, shipped_fleet
from podyard.settings import FLEET_NAMES


def read_fleet(name_or_path: str) -> Fleet:
    """The fleet of that name, else that of the file. Raises FAILED_PRECONDITION for what cannot be
    read."""
    if name_or_path in FLEET_NAMES:
        return shipped_fleet(name_or_path)
    try:
        text = Path(name_or_path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        names = " or ".join(FLEET_NAMES)
        raise failed_precondition(
            f"cannot read the fleet file {name_or_path}: {reason}; use {names}, or the path of "
            "a fleet file"
        ) from None
    return load_fleet(text)
