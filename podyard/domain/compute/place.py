"""Places of Compute Engine's resources: the whole project, a region or a zone of it."""

from __future__ import annotations

import dataclasses
import re
from enum import StrEnum

_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
SELF = "https://www.googleapis.com/compute/v1/"  # what links begin with
GLOBAL = "global"


class PlaceLevel(StrEnum):
    GLOBAL = "global"
    REGION = "regions"
    ZONE = "zones"


@dataclasses.dataclass(frozen=True, slots=True)
class ComputePlace:
    """`name`: of a region or a zone; `global` for the project itself."""

    level: PlaceLevel
    name: str = GLOBAL

    @property
    def path(self) -> str:
        """`global`, `regions/R` or `zones/Z`."""
        return GLOBAL if self.level is PlaceLevel.GLOBAL else f"{self.level}/{self.name}"


WHOLE_PROJECT = ComputePlace(PlaceLevel.GLOBAL)


def place_named(name: str) -> ComputePlace:
    """The place of a stored name: `global`, a region or a zone."""
    if name == GLOBAL:
        return WHOLE_PROJECT
    return ComputePlace(PlaceLevel.ZONE if _ZONE.fullmatch(name) else PlaceLevel.REGION, name)


def link(path: str) -> str:
    """The URL of `projects/P/...`, as answers have it."""
    return f"{SELF}{path}"


def whole_path(url: str, project: str) -> str:
    """`projects/P/...` of a URL, of a path, or of a partial one in `project`, such as
    `global/networks/default`; a bare name stays as it is."""
    path = path_of(url)
    return f"projects/{project}/{path}" if path.startswith(_PARTIAL) else path


_PARTIAL = (f"{GLOBAL}/", "regions/", "zones/")


def path_of(url: str) -> str:
    """`projects/P/...` of a URL, of a path with or without a version, or of a partial one."""
    at = url.find("projects/")
    return url[at:] if at >= 0 else url.lstrip("/")
