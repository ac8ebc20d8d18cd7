"""A node: Google's TPU node resource, and its states."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from podyard.base.clock import PlatformTime
from podyard.domain.host_record import HostState
from podyard.domain.machine import Machine
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.hardware.topology import NO_TOPOLOGY


class NodeState(StrEnum):
    CREATING = "CREATING"
    READY = "READY"
    RESTARTING = "RESTARTING"
    REIMAGING = "REIMAGING"
    REPAIRING = "REPAIRING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    STARTING = "STARTING"
    PREEMPTED = "PREEMPTED"
    TERMINATED = "TERMINATED"
    HIDING = "HIDING"
    HIDDEN = "HIDDEN"
    UNHIDING = "UNHIDING"
    UNKNOWN = "UNKNOWN"
    DELETING = "DELETING"
    GONE = "GONE"


_DELETE = {"delete": NodeState.DELETING}
_TAKE_BACK = {"preempt": NodeState.PREEMPTED, "terminate": NodeState.TERMINATED}

# Edges: the states of google.cloud.tpu.v2.Node, as its documents and clients move them. `fail` ends
# a creation that found no capacity: the node vanishes. `relabel` keeps the state: from then on its
# use counts under other labels.
NODE = Machine(
    "node",
    NodeState.CREATING,
    {
        NodeState.CREATING: {
            "created": NodeState.READY,
            "fail": NodeState.GONE,
            "preempt": NodeState.PREEMPTED,
            **_DELETE,
        },
        NodeState.READY: {
            "stop": NodeState.STOPPING,
            "restart": NodeState.RESTARTING,
            "repair": NodeState.REPAIRING,
            "reimage": NodeState.REIMAGING,
            "hide": NodeState.HIDING,
            "relabel": NodeState.READY,
            **_TAKE_BACK,
            **_DELETE,
        },
        NodeState.RESTARTING: {"restarted": NodeState.READY, **_TAKE_BACK, **_DELETE},
        NodeState.REIMAGING: {"reimaged": NodeState.READY, **_TAKE_BACK, **_DELETE},
        NodeState.REPAIRING: {
            "repaired": NodeState.READY,
            "repair_failed": NodeState.UNKNOWN,
            **_TAKE_BACK,
            **_DELETE,
        },
        NodeState.STOPPING: {"stopped": NodeState.STOPPED, **_DELETE},
        NodeState.STOPPED: {
            "start": NodeState.STARTING,
            "relabel": NodeState.STOPPED,
            "terminate": NodeState.TERMINATED,
            **_DELETE,
        },
        NodeState.STARTING: {
            "started": NodeState.READY,
            "fail": NodeState.STOPPED,
            **_TAKE_BACK,
            **_DELETE,
        },
        NodeState.PREEMPTED: _DELETE,
        NodeState.TERMINATED: _DELETE,
        NodeState.HIDING: {"hidden": NodeState.HIDDEN, **_DELETE},
        NodeState.HIDDEN: {"unhide": NodeState.UNHIDING, **_DELETE},
        NodeState.UNHIDING: {"unhidden": NodeState.READY, **_DELETE},
        NodeState.UNKNOWN: _DELETE,
        NodeState.DELETING: {"deleted": NodeState.GONE},
        NodeState.GONE: {},
    },
)

# The server adds it to scopes without it (GoogleCloudPlatform/magic-modules#9308).
PUBSUB_SCOPE = "https://www.googleapis.com/auth/pubsub"
SAY_LABELS = frozenset({"create", "relabel"})  # events that say what labels a node has from then on
# Charges accrue while a node is READY and in no other state (R2).
BILLABLE_NODE_STATES = frozenset({NodeState.READY})
# In these states a node without a slice waits for one: REPAIRING when it has left one that broke.
NODE_STATES_WAITING_FOR_SLICE = frozenset(
    {NodeState.CREATING, NodeState.STARTING, NodeState.REPAIRING}
)
# In these a node has lost its slice for good, and is listed until it is deleted.
NODE_STATES_LOST = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED, NodeState.UNKNOWN})

# google.cloud.tpu.v2.Node.Health
HEALTHY = "HEALTHY"
UNHEALTHY_MAINTENANCE = "UNHEALTHY_MAINTENANCE"
UNHEALTHY_TENSORFLOW = "UNHEALTHY_TENSORFLOW"
TIMEOUT = "TIMEOUT"
# google.cloud.tpu.v2alpha1.UpcomingMaintenance.MaintenanceStatus
PENDING, ONGOING = "PENDING", "ONGOING"


# Of Google's API, whose nodes have the architecture TPU Node: a host VM apart from the TPU. Those
# of v2 are TPU VMs.
TPU_NODE_VERSIONS = frozenset({"V1", "V1_ALPHA1"})


class Road(StrEnum):
    """The API that a node is asked for by: Cloud TPU's, or Compute Engine's as instances."""

    TPU = "tpu"
    COMPUTE = "compute"


class UsageClass(StrEnum):
    """The way in which a node is bought; the usage column of the rate card."""

    ON_DEMAND = "on-demand"
    PREEMPTIBLE = "preemptible"
    SPOT = "spot"
    RESERVED = "reserved"


COMPUTE = "compute"  # of `extras`: what only Compute Engine's instances have
# Of `extras`, on Compute Engine's road: it goes on waiting for chips; it is stopped, not deleted,
# when the platform takes them.
QUEUES, STOPS = "queues", "stops"
# what may be taken back at any time
INTERRUPTIBLE = frozenset({UsageClass.PREEMPTIBLE, UsageClass.SPOT})


class ServiceAccount(NamedTuple):
    """The identity of a node; without an email the project's default."""

    email: str
    scopes: tuple[str, ...]


class DataDisk(NamedTuple):
    source: str
    mode: str | None


class Network(NamedTuple):
    name: str
    has_external_ips: bool
    subnetwork: str = ""


class Symptom(NamedTuple):
    """google.cloud.tpu.v2.Symptom. Its time is RFC 3339."""

    create_time: str
    symptom_type: str
    details: str
    worker_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as a client asks for it. `extras` holds the wire fields that the platform stores and
    gives back as they came (networkConfig, serviceAccount, ...), in their JSON form, already
    checked against the API's schema.

    `api_version` (V1, V1_ALPHA1, V2, V2_ALPHA1) is the version of the API that made it. A reserved
    node uses `reservation_name` (empty, or ending in `/-`: any of its zone). `max_run_seconds` from
    its first READY, or at `termination_time` (nanoseconds of platform time), the node ends.
    """

    accelerator_type: str
    topology: str
    runtime_version: str
    usage_class: UsageClass
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

    @property
    def service_account(self) -> ServiceAccount:
        account = self.extras.get("serviceAccount") or {}
        scopes = tuple(account.get("scope") or ())
        if scopes and PUBSUB_SCOPE not in scopes:
            scopes = (*scopes, PUBSUB_SCOPE)
        return ServiceAccount(account.get("email") or "", scopes)

    @property
    def data_disks(self) -> list[DataDisk]:
        return [
            DataDisk(disk.get("sourceDisk") or "", disk.get("mode"))
            for disk in self.extras.get("dataDisks", ())
        ]

    @property
    def networks(self) -> list[Network]:
        """Its interfaces: one at least."""
        configs = self.extras.get("networkConfigs") or [self.extras.get("networkConfig") or {}]
        return [
            Network(
                str(one.get("network") or ""),
                bool(one.get("enableExternalIps")),
                str(one.get("subnetwork") or ""),
            )
            for one in configs
        ]

    @property
    def stops_when_taken(self) -> bool:
        """Return whether the platform stops it, and does not delete it, when it takes its chips
        (of Compute Engine: `instanceTerminationAction`)."""
        return bool(self.extras.get(STOPS))

    @property
    def has_both_networks(self) -> bool:
        """Return whether it has the field of one network and the field of several, which exclude
        each other."""
        return "networkConfig" in self.extras and "networkConfigs" in self.extras


@dataclasses.dataclass(frozen=True, slots=True)
class UpcomingMaintenance:
    """google.cloud.tpu.v2alpha1.UpcomingMaintenance. Its times are RFC 3339."""

    type: str
    can_reschedule: bool
    window_start: str
    window_end: str
    latest_window_start: str
    maintenance_status: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeBase:
    """The fields of a node that are kept and shown. `node_key` is the record's own id: a name may
    be used again after the node is gone. `queued_resource`: the full name of the one that it
    belongs to, or nothing. `maintenance_workers` are the hosts that a maintenance event is on.
    `termination`: when it ends by itself. `created_by`: who asked for it, or for what it was made
    for; empty: nobody knows any more.
    """

    node_key: str
    number: int
    project: str
    zone: str
    node_id: str
    state: NodeState
    version: int
    spec: NodeSpec
    created: PlatformTime
    ready_since: PlatformTime | None
    state_reason: str
    queued_resource: str = ""
    slice_index: int = 0
    slice_count: int = 1
    health: str = HEALTHY
    health_description: str = ""
    symptoms: tuple[Symptom, ...] = ()
    upcoming_maintenance: UpcomingMaintenance | None = None
    maintenance_workers: tuple[int, ...] = ()
    termination: PlatformTime | None = None
    created_by: str = ""
    road: Road = Road.TPU

    @property
    def name(self) -> str:
        return name_on(self.road, self.project, self.zone, self.node_id)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord(NodeBase):
    """A node as the platform keeps it. `live_name` is its name while it is, and None once it is
    gone.

    `wait_reason`: why it has no chips yet. `pending_operation` ends with the state that passes.
    `first_address`: number of its first host's address; 0: it has none yet. `job_key`: of the job
    that it was made for, and goes with. `reservation_key`: of the reservation that it was last
    placed under. `reclaim_at`: it is under notice, and its slice is taken back then. `last_pod`: it
    has left a broken slice there, and is placed there again if it can be.
    """

    live_name: str | None
    accelerator_type: str
    topology: str
    usage_class: UsageClass
    runtime_version: str
    wait_reason: str
    pending_operation: str | None
    host_count: int
    first_address: int
    job_key: str | None
    queued_resource_key: str | None = None
    reservation_key: str | None = None
    reclaim_at: PlatformTime | None = None
    last_pod: str | None = None

    @property
    def kind(self) -> AcceleratorType:
        return kind_of(self.accelerator_type, self.topology, self.host_count)

    @property
    def is_reclaimed(self) -> bool:
        """Return whether it is taken back, or has notice of it; instances are stopped or deleted
        then."""
        taken = self.road is Road.COMPUTE and self.state_reason.startswith("preempted")
        return taken or self.state is NodeState.PREEMPTED or self.reclaim_at is not None

    @property
    def machine_type(self) -> str:
        """Compute Engine's, of its hosts; empty on Cloud TPU's road."""
        name: str = self.spec.extras.get(COMPUTE, {}).get("machine_type", "")
        return name

    @property
    def has_chips(self) -> bool:
        return self.topology != NO_TOPOLOGY


@dataclasses.dataclass(frozen=True, slots=True)
class NodeHost:
    """One host (TPU VM) of a node, as it is shown: its addresses on Google's wire, and its state in
    the console."""

    host_index: int
    internal_ip: str
    external_ip: str
    state: HostState
    isolation: str = ""
    software: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node(NodeBase):
    """A node as it is shown, and as operations keep it: with slice and hosts. `state_reason` also
    says why it waits."""

    job_id: str | None
    slice_id: str | None
    hosts: Sequence[NodeHost] = ()

    @property
    def multislice_node(self) -> bool:
        return self.slice_count > 1


def changed_spec(spec: NodeSpec, changes: Mapping[str, Any]) -> NodeSpec:
    """`changes`: names of fields, or paths of `extras` by their wire names; None clears."""
    data: dict[str, Any] = {name: getattr(spec, name) for name in NodeSpec.__dataclass_fields__}
    data["extras"] = dict(spec.extras)
    for path, value in changes.items():
        *parents, name = path.split(".") if path in data else f"extras.{path}".split(".")
        holder = data
        for parent in parents:
            holder[parent] = holder = dict(holder.get(parent, {}))
        if value is None:
            holder.pop(name, None)
        else:
            holder[name] = value
    return NodeSpec(**data)


@functools.lru_cache(maxsize=4096)
def node_name(project: str, zone: str, node_id: str) -> str:
    return f"projects/{project}/locations/{zone}/nodes/{node_id}"


def name_on(road: Road, project: str, zone: str, node_id: str) -> str:
    """The full name of a node: on Compute Engine's road that of its first instance."""
    of_road = instance_name if road is Road.COMPUTE else node_name
    return of_road(project, zone, node_id)


def instance_name(project: str, zone: str, instance: str) -> str:
    """Of an instance of Compute Engine, as its API writes it."""
    return f"projects/{project}/zones/{zone}/instances/{instance}"
