"""Records of state changes, for audit, the console and the checks."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class StateChange:
    """`seq` orders all of them; `version` those of one resource. `event` is that of the `machine`'s
    table, `from_state` is empty for a creation."""

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
