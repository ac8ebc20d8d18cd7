"""Options of the Podyard for a test, by marker, by pytest's ini file, or by `local()`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podyard.base.clock import ClockMode, PlatformTime
from podyard.base.errors import invalid
from podyard.control.platform.clock import RATE_MAX
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import instant_fleet, load_fleet
from podyard.settings import FLEET_NAMES
from podyard.stack.fleets import read_fleet
from podyard.testing.scenario import read_scenario

# within the time that the rate card prices, and the same in every run
START = "2026-03-01T00:00:00Z"
PROJECT = "demo"  # the one that the first start makes
LOCATION = "us-central1-f"


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """`rate`: platform seconds per real second of a virtual clock; 0: it stands still until it is
    advanced. `seed`: of ids and of the faults that happen by chance. `env`: whether the test's
    environment points to it. `fsck`: whether the test fails when an invariant is broken after it.
    `scenario`: a file whose faults stand from the beginning."""

    fleet: Fleet = dataclasses.field(default_factory=instant_fleet)
    clock: ClockMode = ClockMode.VIRTUAL
    rate: float = 0.0
    start: PlatformTime = dataclasses.field(
        default_factory=lambda: PlatformTime.from_rfc3339(START)
    )
    seed: int = 0
    location: str = LOCATION
    env: bool = False
    fsck: bool = True
    scenario: Path | None = None


NAMES = tuple(field.name for field in dataclasses.fields(Options))


def read_options(given: Mapping[str, Any], folder: Path | None = None) -> Options:
    """Options as a user wrote them; files are relative to `folder`. Raises INVALID_ARGUMENT that
    names the option,
    or the line and field of a scenario file, and FAILED_PRECONDITION that names the place in a
    fleet file."""
    unknown = [name for name in given if name not in NAMES]
    if unknown:
        raise invalid(f"unknown option {unknown[0]!r}: use {', '.join(NAMES)}", unknown[0])
    read = {name: _READERS[name](name, value, folder or Path()) for name, value in given.items()}
    found = Options(**read)
    if found.rate and found.clock is not ClockMode.VIRTUAL:
        raise invalid(
            f"rate can only be set with a virtual clock, not with a {found.clock} clock", "rate"
        )
    if found.location not in found.fleet.zones:
        if "location" in given:
            raise invalid(f"location: the fleet has no zone {found.location}", "location")
        found = dataclasses.replace(found, location=next(iter(found.fleet.zones)))
    if found.scenario is not None:
        # what is wrong with it is said before anything starts
        read_scenario(found.scenario, found.start)
    return found


def _fleet(name: str, value: Any, folder: Path) -> Fleet:
    """A Fleet, the name of one that comes with Podyard, a mapping or YAML text of a fleet file, or
    the path of one."""
    if isinstance(value, Fleet):
        return value
    if isinstance(value, Mapping):
        import yaml

        return load_fleet(yaml.safe_dump(dict(value)))
    if isinstance(value, str) and "\n" in value:
        return load_fleet(value)
    return read_fleet(value if value in FLEET_NAMES else str(_path(name, value, folder)))


def _path(name: str, value: Any, folder: Path) -> Path:
    if not isinstance(value, str | Path):
        raise invalid(f"{name} is {value!r}: it must be the path of a file", name)
    path = folder / value
    if not path.is_file():
        raise invalid(f"{name}: there is no file {path}", name)
    return path


def _clock(name: str, value: Any, _folder: Path) -> ClockMode:
    if value not in tuple(ClockMode):
        raise invalid(f"{name} is {value!r}: it must be one of {', '.join(ClockMode)}", name)
    return ClockMode(value)


def _rate(name: str, value: Any, _folder: Path) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = -1.0
    if not 0 <= rate <= RATE_MAX:
        raise invalid(
            f"{name} is {value!r}: "
            f"it must be from 0 to {RATE_MAX} platform seconds per real second",
            name,
        )
    return rate


def _start(name: str, value: Any, _folder: Path) -> PlatformTime:
    try:
        return PlatformTime.from_rfc3339(str(value))
    except ValueError as error:
        raise invalid(f"{name}: {error}", name) from None


def _seed(name: str, value: Any, _folder: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isdigit():
        raise invalid(f"{name} is {value!r}: it must be a whole number, 0 or more", name)
    return int(value)


def _text(name: str, value: Any, _folder: Path) -> str:
    if not isinstance(value, str) or not value:
        raise invalid(f"{name} is {value!r}: it must be a name", name)
    return value


def _flag(name: str, value: Any, _folder: Path) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"{name} is {value!r}: it must be true or false", name)
    return value


_READERS: Mapping[str, Any] = {
    "fleet": _fleet,
    "clock": _clock,
    "rate": _rate,
    "start": _start,
    "seed": _seed,
    "location": _text,
    "env": _flag,
    "fsck": _flag,
    "scenario": _path,
}
