"""An agent: our process on a real machine, which runs replicas and hosts."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import RealTime


@dataclasses.dataclass(frozen=True, slots=True)
class AgentRecord:
    """`fence` counts the processes of this name: an older one is refused. `seen`: when it was last heard of."""

    agent_id: str
    bind_address: str
    replicas_max: int
    hosts_max: int
    pid: int
    fence: int
    registered: RealTime
    seen: RealTime
