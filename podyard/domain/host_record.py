"""One host (TPU VM) of a node as the platform keeps it: a record and no more, until something must
run on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from podyard.base.clock import PlatformTime, RealTime
from podyard.domain.machine import Machine
from podyard.domain.ran_module import RanModule


class HostState(StrEnum):
    VIRTUAL = "VIRTUAL"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    REMOVED = "REMOVED"


HOST = Machine(
    "host",
    HostState.VIRTUAL,
    {
        HostState.VIRTUAL: {"materialise": HostState.STARTING, "remove": HostState.REMOVED},
        HostState.STARTING: {
            "run": HostState.RUNNING,
            "stop": HostState.STOPPING,
            "exit": HostState.VIRTUAL,
        },
        HostState.RUNNING: {"stop": HostState.STOPPING, "exit": HostState.VIRTUAL},
        HostState.STOPPING: {"exit": HostState.VIRTUAL},
        HostState.REMOVED: {},
    },
)
# Processes of such a host may be on its chips.
LIVE_HOST_STATES = (HostState.STARTING, HostState.RUNNING, HostState.STOPPING)


@dataclasses.dataclass(frozen=True, slots=True)
class HostRecord:
    """`generation` counts how often the host was materialised: it is the fence of every report.

    `asked`: a user asked for it, and it comes back for as long as its node is READY. `ready_since`
    is the node's when the host was materialised: a node that is READY again has rebooted.
    `bind_address` is that of its ssh server, `metadata_address` has a port, `port_map` is by
    service (ssh, metadata, tensorflow). `guest_attributes` are by namespace and key; `scripts` says
    what became of each, as the host server reports it, and
    `isolation` what keeps it apart from its machine. `software`: what its runtime version has here,
    or how far that is while the host waits for it. `programs`: what its programs compiled and ran.
    """

    host_id: str
    node_key: str
    host_index: int
    internal_ip: str
    external_ip: str
    state: HostState
    version: int
    agent_id: str | None
    bind_address: str | None
    port_map: Mapping[str, int]
    metadata_address: str
    generation: int
    asked: bool
    ready_since: PlatformTime | None
    tried: RealTime | None
    lease_until: RealTime | None
    problem: str
    ssh_host_key: str
    guest_attributes: Mapping[str, Mapping[str, str]]
    scripts: Mapping[str, Any]
    isolation: str
    software: str
    programs: tuple[RanModule, ...]

    @property
    def is_live(self) -> bool:
        """Return whether processes of the host may be on its chips."""
        return self.state in LIVE_HOST_STATES
