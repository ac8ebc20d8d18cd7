"""A node: Google's TPU node resource, and its states."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.host_record import HostState
from podyard.domain.machine import Machine
from podyard.hardware.accelerator_types import AcceleratorType, from_config
from podyard.hardware.generations import GENERATIONS

_DELETE = {"delete": "DELETING"}
_TAKE_BACK = {"preempt": "PREEMPTED", "terminate": "TERMINATED"}

# Edges: the states of google.cloud.tpu.v2.Node, as its documents and clients move them. `fail` ends a creation that
# found no capacity: the node vanishes.
NODE = Machine(
    "node",
    "CREATING",
    {
        "CREATING": {"created": "READY", "fail": "GONE", "preempt": "PREEMPTED", **_DELETE},
        "READY": {
            "stop": "STOPPING",
            "restart": "RESTARTING",
            "repair": "REPAIRING",
            "reimage": "REIMAGING",
            "hide": "HIDING",
            **_TAKE_BACK,
            **_DELETE,
        },
        "RESTARTING": {"restarted": "READY", **_TAKE_BACK, **_DELETE},
        "REIMAGING": {"reimaged": "READY", **_TAKE_BACK, **_DELETE},
        "REPAIRING": {"repaired": "READY", "repair_failed": "UNKNOWN", **_TAKE_BACK, **_DELETE},
        "STOPPING": {"stopped": "STOPPED", **_DELETE},
        "STOPPED": {"start": "STARTING", "terminate": "TERMINATED", **_DELETE},
        "STARTING": {"started": "READY", "fail": "STOPPED", **_TAKE_BACK, **_DELETE},
        "PREEMPTED": _DELETE,
        "TERMINATED": _DELETE,
        "HIDING": {"hidden": "HIDDEN", **_DELETE},
        "HIDDEN": {"unhide": "UNHIDING", **_DELETE},
        "UNHIDING": {"unhidden": "READY", **_DELETE},
        "UNKNOWN": _DELETE,
        "DELETING": {"deleted": "GONE"},
        "GONE": {},
    },
)

# Charges accrue while a node is READY and in no other state (R2).
BILLABLE_NODE_STATES = frozenset({"READY"})
# In these states a node without a slice waits for one: REPAIRING when it has left one that broke.
NODE_STATES_WAITING_FOR_SLICE = frozenset({"CREATING", "STARTING", "REPAIRING"})
# In these a node has lost its slice for good, and is listed until it is deleted.
NODE_STATES_LOST = frozenset({"PREEMPTED", "TERMINATED", "UNKNOWN"})

# google.cloud.tpu.v2.Node.Health
HEALTHY = "HEALTHY"
UNHEALTHY_MAINTENANCE = "UNHEALTHY_MAINTENANCE"
UNHEALTHY_TENSORFLOW = "UNHEALTHY_TENSORFLOW"
TIMEOUT = "TIMEOUT"


class UsageClass(StrEnum):
    """How a node is bought; the usage column of the rate card."""

    ON_DEMAND = "on-demand"
    PREEMPTIBLE = "preemptible"
    SPOT = "spot"
    RESERVED = "reserved"


INTERRUPTIBLE = frozenset({UsageClass.PREEMPTIBLE, UsageClass.SPOT})  # what may be taken back at any time


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a client asks for. `extras` holds the wire fields that the platform stores and gives back as they came
    (networkConfig, serviceAccount, ...), in their JSON form, already checked against the API's schema.

    `api_version` (V1, V1_ALPHA1, V2, V2_ALPHA1) is the version of the API that made it. A reserved node uses
    `reservation_name` (empty, or ending in `/-`: any of its zone). `max_run_seconds` from its first READY, or at
    `termination_time` (nanoseconds of platform time), the node ends.
    """

    accelerator_type: str
    topology: str
    runtime_version: str
    usage_class: UsageClass
    given_accelerator_config: bool = False
    description: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tags: Sequence[str] = ()
    cidr_block: str = ""
    extras: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    api_version: str = "V2"
    reservation_name: str = ""
    max_run_seconds: float | None = None
    termination_time: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NodeHost:
    """What is shown of one host (TPU VM) of a node: its addresses on Google's wire, and its state in the console."""

    host_index: int
    internal_ip: str
    external_ip: str
    state: HostState


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node as it stands. `node_key` is the row's own id: a name may be used again after the node is gone.

    `queued_resource`: the full name of the one that it belongs to, or nothing. `upcoming_maintenance` has `type`,
    `can_reschedule`, `window_start`, `window_end`, `latest_window_start` (RFC 3339) and `maintenance_status`;
    `maintenance_workers` are the hosts that a maintenance event is on. `termination`: when it will end by itself.
    """

    node_key: str
    number: int
    project: str
    zone: str
    node_id: str
    state: str
    version: int
    spec: NodeSpec
    created: PlatformTime
    ready_since: PlatformTime | None
    state_reason: str
    job_id: str | None
    slice_id: str | None
    hosts: Sequence[NodeHost] = ()
    queued_resource: str = ""
    slice_index: int = 0
    slice_count: int = 1
    health: str = HEALTHY
    health_description: str = ""
    symptoms: tuple[Mapping[str, Any], ...] = ()
    upcoming_maintenance: Mapping[str, Any] | None = None
    maintenance_workers: tuple[int, ...] = ()
    termination: PlatformTime | None = None

    @property
    def name(self) -> str:
        return node_name(self.project, self.zone, self.node_id)

    @property
    def multislice_node(self) -> bool:
        return self.slice_count > 1


@functools.lru_cache(maxsize=4096)
def kind_of(accelerator_type: str, topology: str) -> AcceleratorType:
    """The accelerator type of a row: v4 and v5p shapes that are no name's default are found by their topology."""
    prefix = accelerator_type.rsplit("-", 1)[0]
    for generation in GENERATIONS.values():
        if generation.wire_type is not None and generation.name_prefix == prefix:
            return from_config(generation.wire_type, topology)
    raise AssertionError(f"a row has the unknown accelerator type {accelerator_type}")


def node_name(project: str, zone: str, node_id: str) -> str:
    return f"projects/{project}/locations/{zone}/nodes/{node_id}"
