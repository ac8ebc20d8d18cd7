"""A project: what nodes, jobs, bills and roles belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.clock import PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class Project:
    """`number` has twelve digits, as Google's have. `compute_metadata` is the project's
    `commonInstanceMetadata` in Compute Engine's API. `chips_max`: the chips that it may hold at
    once, in all zones; None: the fleet's quotas only.
    """

    project: str
    number: int
    labels: Mapping[str, str]
    created: PlatformTime
    compute_metadata: Mapping[str, str]
    chips_max: int | None = None
