"""What happened: one row per change of a state, written in the unit that changes it."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class StateChanged:
    """`seq` orders all events of the platform, `version` those of one resource."""

    seq: int
    event_id: str
    machine: str
    resource_key: str
    resource_name: str
    project: str
    version: int
    event: str
    from_state: str
    to_state: str
    at: PlatformTime
    reason: str
    actor: str
