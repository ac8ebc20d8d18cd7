"""An instance of Compute Engine: one host of a row of nodes, with the states of that API.

The row of nodes has everything that takes time; an instance has a name and a number besides. Its
state follows from the row's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from podyard.base.clock import PlatformTime
from podyard.base.errors import ErrorInfo
from podyard.domain.compute.refusal import ComputeRefusal, Reason, invalid_value
from podyard.domain.compute.resource import fingerprint_of
from podyard.domain.host import default_service_account
from podyard.domain.node import (
    COMPUTE,
    INTERRUPTIBLE,
    QUEUES,
    STOPS,
    NodeRecord,
    NodeSpec,
    NodeState,
    UsageClass,
    instance_name,
)
from podyard.hardware import machine_types
from podyard.hardware.machine_types import MachineType
from podyard.hardware.topology import NO_TOPOLOGY

DEFAULT_ACCESS = "External NAT"  # the name of an external address
POLICIES_FIELD = "resourcePolicies"  # of Instance
# Of BulkInsertInstanceResource.
EACH_FIELD, LEAST_FIELD = "perInstanceProperties", "minCount"
EXHAUSTED, LEAST_NOT_REACHED = "ZONE_RESOURCE_POOL_EXHAUSTED", "VM_MIN_COUNT_NOT_REACHED"
DEFAULT_IMAGE = "projects/debian-cloud/global/images/family/debian-12"
BOOT_DISK_GB = 10
# Compute Engine's CPUS of a new project in a region; of all usage classes (docs: allocation quotas)
CPUS_PER_REGION_MAX = 128
# Instances without chips of all projects: each may become a host of this machine.
HOSTS_WITHOUT_CHIPS_MAX = 256
# What `requestValidForDuration` and `maxRunDuration` may be (facts of flex-start, July 2026)
VALID_SECONDS_MAX = 7200.0
RUN_SECONDS_MIN, RUN_SECONDS_MAX = 30.0, 120 * 86_400.0
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")


class InstanceStatus(StrEnum):
    """Of google.cloud.compute.v1.Instance. PENDING: flex-start waits for chips."""

    PENDING = "PENDING"
    PROVISIONING = "PROVISIONING"
    STAGING = "STAGING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"
    REPAIRING = "REPAIRING"


class ProvisioningModel(StrEnum):
    STANDARD = "STANDARD"
    SPOT = "SPOT"
    FLEX_START = "FLEX_START"
    RESERVATION_BOUND = "RESERVATION_BOUND"


class TerminationAction(StrEnum):
    STOP = "STOP"
    DELETE = "DELETE"


# Where the row's state alone says it: of other states, but CREATING, it is TERMINATED.
_STATUS: Mapping[NodeState, InstanceStatus] = {
    NodeState.READY: InstanceStatus.RUNNING,
    NodeState.RESTARTING: InstanceStatus.RUNNING,
    NodeState.REIMAGING: InstanceStatus.RUNNING,
    NodeState.REPAIRING: InstanceStatus.REPAIRING,
    NodeState.STOPPING: InstanceStatus.STOPPING,
    NodeState.STOPPED: InstanceStatus.TERMINATED,
    NodeState.STARTING: InstanceStatus.STAGING,
    NodeState.DELETING: InstanceStatus.STOPPING,
}


def status_of(state: NodeState, *, has_hosts: bool, queues: bool) -> InstanceStatus:
    """`has_hosts`: it has had chips and hosts; `queues`: it waits for them as flex-start does."""
    if state is not NodeState.CREATING:
        return _STATUS.get(state, InstanceStatus.TERMINATED)
    if has_hosts:
        return InstanceStatus.STAGING
    return InstanceStatus.PENDING if queues else InstanceStatus.PROVISIONING


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Interface(NamedTuple):
    """A network interface as it was asked for. `extras`, `access`: fields of it, and of its
    external address, that nothing follows from, as the API has them."""

    network: str = ""
    subnetwork: str = ""
    has_external_ip: bool = False
    extras: Mapping[str, Any] = _NOTHING
    access: Mapping[str, Any] = _NOTHING

    @property
    def access_name(self) -> str:
        return str(self.access.get("name") or DEFAULT_ACCESS)


class BootDisk(NamedTuple):
    """The boot disk as it was asked for; an empty name: that of the instance. `exists`: it is not
    made with the instance, and has its image and size from before. `labels` None: those of the
    instance."""

    image: str = DEFAULT_IMAGE
    size_gb: int = BOOT_DISK_GB
    type: str = "pd-balanced"
    auto_delete: bool = True
    name: str = ""
    exists: bool = False
    device_name: str = ""
    labels: Mapping[str, str] | None = None

    @property
    def device(self) -> str:
        return self.device_name or "persistent-disk-0"


class AttachedDisk(NamedTuple):
    """A data disk: `source` is `projects/P/zones/Z/disks/D`. `new_gb`: it is made with the
    instance, blank and of this size, of `new_type`; 0: it exists. A new one without a source is
    named after the instance."""

    source: str
    mode: str = "READ_WRITE"
    device_name: str = ""
    auto_delete: bool = False
    new_gb: int = 0
    new_type: str = ""

    @property
    def device(self) -> str:
        """Its device name: as it was attached, else the last part of the disk's name."""
        return self.device_name or self.source.rpartition("/")[2]


class Scheduling(NamedTuple):
    """The purchase and the end of an instance. Seconds None: no limit."""

    model: ProvisioningModel = ProvisioningModel.STANDARD
    preemptible: bool = False
    termination_action: TerminationAction | None = None
    max_run_seconds: float | None = None
    valid_for_seconds: float | None = None
    automatic_restart: bool | None = None
    on_host_maintenance: str = ""

    @property
    def usage_class(self) -> UsageClass:
        if self.model is ProvisioningModel.SPOT:
            return UsageClass.SPOT
        if self.model is ProvisioningModel.RESERVATION_BOUND:
            return UsageClass.RESERVED
        return UsageClass.PREEMPTIBLE if self.preemptible else UsageClass.ON_DEMAND

    @property
    def stops(self) -> bool:
        """Return whether the platform stops it at its end: spot instances unless they say
        otherwise; flex-start is deleted (docs: instanceTerminationAction)."""
        if self.termination_action is not None:
            return self.termination_action is TerminationAction.STOP
        return self.model is not ProvisioningModel.FLEX_START

    def check(self) -> None:
        """Raises INVALID_ARGUMENT for what excludes each other, and for missing durations."""
        run = self.max_run_seconds
        if self.model is ProvisioningModel.FLEX_START and run is None:
            why = "FLEX_START instances must have a maximum run duration."
            raise invalid_value("scheduling.maxRunDuration", "", why)
        if run is not None and not RUN_SECONDS_MIN <= run <= RUN_SECONDS_MAX:
            why = f"It must be from {RUN_SECONDS_MIN:g} to {RUN_SECONDS_MAX:g} seconds."
            raise invalid_value("scheduling.maxRunDuration", f"{run:g}", why)
        valid = self.valid_for_seconds
        if valid is not None and not 0 <= valid <= VALID_SECONDS_MAX:
            why = f"It must be at most {VALID_SECONDS_MAX:g} seconds."
            raise invalid_value("params.requestValidForDuration", f"{valid:g}", why)
        model = self.model
        if self.preemptible and model not in (ProvisioningModel.STANDARD, ProvisioningModel.SPOT):
            why = f"It excludes the provisioning model {model}."
            raise invalid_value("scheduling.preemptible", "true", why)
        if self.usage_class in INTERRUPTIBLE and self.automatic_restart:
            raise ComputeRefusal(
                Reason.INVALID,
                "Scheduling must have automaticRestart be false for Spot VMs or when preemptible "
                "is true.",
            )


DEFAULT_SCHEDULING, DEFAULT_INTERFACE, DEFAULT_BOOT = Scheduling(), Interface(), BootDisk()


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceSpec:
    """An instance as a client asks for it. `extras`: fields that nothing follows from, as the API
    has them. `bulk_count`, `least_count`: of its bulk request, how many instances it asks for, and
    how many of them must run for it to succeed."""

    machine_type: str
    description: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tags: tuple[str, ...] = ()
    scheduling: Scheduling = DEFAULT_SCHEDULING
    interfaces: tuple[Interface, ...] = (DEFAULT_INTERFACE,)
    boot: BootDisk = DEFAULT_BOOT
    disks: tuple[AttachedDisk, ...] = ()
    service_account: str = ""
    scopes: tuple[str, ...] = ()
    reservation_name: str = ""
    deletion_protection: bool = False
    can_ip_forward: bool = False
    hostname: str = ""
    template: str = ""
    extras: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bulk_count: int = 0
    least_count: int = 0

    @property
    def placement_policies(self) -> Sequence[str]:
        """The paths of the resource policies that it is placed by."""
        return tuple(self.extras.get(POLICIES_FIELD, ()))

    @property
    def machine(self) -> MachineType:
        """Raises INVALID_ARGUMENT for one that does not exist."""
        machine = machine_types.find(self.machine_type)
        if machine is None:
            raise self.unknown_machine("")
        return machine

    def unknown_machine(self, zone: str) -> ComputeRefusal:
        """Google's text for a machine type that a zone does not have."""
        where = f" in zone '{zone}'" if zone else ""
        only = (
            ": Compute Engine has it for GKE only"
            if self.machine_type in machine_types.GKE_ONLY
            else ""
        )
        name = self.machine_type
        why = f"Machine type with name '{name}' does not exist{where}{only}."
        return invalid_value("machineType", name, why)

    def node_spec(
        self, project: str, zone: str, name: str, topology: str = "", *, queues: bool = False
    ) -> NodeSpec:
        """The same as of a node. `topology`: of the slice that its hosts make; empty: it is one
        host. `queues`: it waits for chips, as flex-start always does."""
        machine = self.machine
        kind = machine.kind(topology) if machine.has_chips else None
        fields = {name: value for name, value in to_json(self).items() if name not in _OF_NODE}
        extras: dict[str, Any] = {
            COMPUTE: fields,
            "networkConfigs": [
                {
                    "network": one.network,
                    "subnetwork": one.subnetwork,
                    "enableExternalIps": one.has_external_ip,
                }
                for one in self.interfaces
            ],
        }
        if self.service_account or self.scopes:
            extras["serviceAccount"] = {"email": self.service_account, "scope": [*self.scopes]}
        disks = [{"sourceDisk": one.source, "mode": one.mode} for one in self.disks]
        if kind is None or kind.host_count == 1:
            disks.insert(0, {"sourceDisk": self.boot_path(project, zone, name)})
        extras["dataDisks"] = disks
        if queues or self.scheduling.model is ProvisioningModel.FLEX_START:
            extras[QUEUES] = True
        if self.scheduling.stops:
            extras[STOPS] = True
        return NodeSpec(
            accelerator_type=machine.name if kind is None else kind.name,
            topology=NO_TOPOLOGY if kind is None else kind.topology.text,
            runtime_version=self.boot.image.rpartition("/")[2],
            usage_class=self.scheduling.usage_class,
            description=self.description,
            labels=dict(self.labels),
            metadata=dict(self.metadata),
            tags=self.tags,
            extras=extras,
            api_version="COMPUTE",
            reservation_name=self.reservation_name,
            max_run_seconds=self.scheduling.max_run_seconds,
        )

    def with_update(self, other: InstanceSpec) -> InstanceSpec:
        """The same with the fields of another one that `instances.update` may change."""
        return dataclasses.replace(self, **{name: getattr(other, name) for name in _UPDATABLE})

    def with_disk_names(self, project: str, zone: str, name: str) -> InstanceSpec:
        """The same, where new disks without a name are named as those of an instance `name`."""
        path = f"projects/{project}/zones/{zone}/disks/{name}"
        disks = (
            one if one.source else one._replace(source=f"{path}-{number}")
            for number, one in enumerate(self.disks, start=1)
        )
        return dataclasses.replace(self, disks=tuple(disks))

    def boot_path(self, project: str, zone: str, name: str) -> str:
        return f"projects/{project}/zones/{zone}/disks/{self.boot.name or name}"


_UPDATABLE = (
    "labels", "metadata", "tags", "description", "deletion_protection", "can_ip_forward", "extras",
)  # fmt: skip
# The fields that a node's spec has, too.
_OF_NODE = (
    "description", "labels", "metadata", "tags", "service_account", "scopes", "reservation_name",
)  # fmt: skip


def to_json(spec: InstanceSpec) -> dict[str, Any]:
    """The form that `of_json` reads."""
    data = {name: getattr(spec, name) for name in InstanceSpec.__dataclass_fields__}
    return data | {
        "scheduling": spec.scheduling._asdict(),
        "interfaces": [
            {**one._asdict(), "extras": dict(one.extras), "access": dict(one.access)}
            for one in spec.interfaces
        ],
        "boot": spec.boot._asdict(),
        "extras": dict(spec.extras),
        "disks": [one._asdict() for one in spec.disks],
        "tags": [*spec.tags],
        "scopes": [*spec.scopes],
    }


def of_json(data: Mapping[str, Any]) -> InstanceSpec:
    scheduling = dict(data["scheduling"])
    action = scheduling["termination_action"]
    scheduling["model"] = ProvisioningModel(scheduling["model"])
    scheduling["termination_action"] = None if action is None else TerminationAction(action)
    parsed = {
        "scheduling": Scheduling(**scheduling),
        "interfaces": tuple(Interface(**one) for one in data["interfaces"]),
        "boot": BootDisk(**data["boot"]),
        "disks": tuple(AttachedDisk(**one) for one in data["disks"]),
        "tags": tuple(data["tags"]),
        "scopes": tuple(data["scopes"]),
    }
    return InstanceSpec(**{**data, **parsed})


def spec_of(node: NodeSpec) -> InstanceSpec:
    """The instance that `InstanceSpec.node_spec` made a node of."""
    account: Mapping[str, Any] = node.extras.get("serviceAccount") or {}
    return of_json(
        {
            **node.extras[COMPUTE],
            "description": node.description,
            "labels": node.labels,
            "metadata": node.metadata,
            "tags": node.tags,
            "service_account": account.get("email") or "",
            "scopes": account.get("scope") or (),
            "reservation_name": node.reservation_name,
        }
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """An instance as it is kept: host `host_index` of a row of nodes. `own`: its labels, metadata
    and tags as JSON, where they are other ones than those of the row."""

    instance_key: str
    number: int
    project: str
    zone: str
    name: str
    node_key: str
    host_index: int
    group_key: str | None
    created: PlatformTime
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def path(self) -> str:
        return instance_name(self.project, self.zone, self.name)


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """An instance as it is shown. Addresses are empty until it has a host. `project_number`: of
    its project."""

    row: InstanceRow
    node: NodeRecord
    internal_ip: str = ""
    external_ip: str = ""
    project_number: int = 0

    @property
    def default_account(self) -> str:
        """The identity of an instance that names none."""
        return default_service_account(self.project_number)

    @property
    def spec(self) -> InstanceSpec:
        shared, own = spec_of(self.node.spec), self.row.own
        if not own:
            return shared
        return dataclasses.replace(shared, **{**own, "tags": tuple(own["tags"])})

    @property
    def status(self) -> InstanceStatus:
        model = self.node.spec.extras[COMPUTE]["scheduling"]["model"]
        queues = model == ProvisioningModel.FLEX_START
        return status_of(self.node.state, has_hosts=self.node.first_address > 0, queues=queues)

    @property
    def status_message(self) -> str:
        return self.node.state_reason or self.node.wait_reason

    @property
    def label_fingerprint(self) -> str:
        return fingerprint_of(dict(self.spec.labels))

    @property
    def metadata_fingerprint(self) -> str:
        return fingerprint_of(dict(self.spec.metadata))

    @property
    def tag_fingerprint(self) -> str:
        return fingerprint_of(list(self.spec.tags))


def own_of(spec: InstanceSpec) -> dict[str, Any]:
    """The part of an instance of a slice that is its own, as `InstanceRow.own` keeps it."""
    return {
        "labels": dict(spec.labels),
        "metadata": dict(spec.metadata),
        "tags": list(spec.tags),
    }


def check_name(name: str) -> None:
    """Raises INVALID_ARGUMENT in Google's words."""
    if not NAME.fullmatch(name):
        why = r"Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'"
        raise invalid_value("name", name, why)


def least_words(node: NodeRecord, least: int) -> tuple[str, ErrorInfo]:
    """The message and the detail of a bulk request of which too few instances found chips
    (skypilot, sky/provision/gcp/instance_utils.py, has both)."""
    about = stockout_words(node, "too few instances of the request found chips")[1].metadata
    text = f"Requested minimum count of {least} VMs could not be created."
    return text, ErrorInfo(LEAST_NOT_REACHED, "compute.googleapis.com", about)


def stockout_words(node: NodeRecord, reason: str) -> tuple[str, ErrorInfo]:
    """The message and the detail of an operation that found no chips
    (kubernetes/k8s.io#9834 has both)."""
    zone = f"projects/{node.project}/zones/{node.zone}"
    text = (
        f"The zone '{zone}' does not have enough resources available to fulfill the request.  "
        "Try a different zone, or try again later."
    )
    about = {"vmType": node.machine_type, "attachment": "", "zone": node.zone, "zonesAvailable": ""}
    return text, ErrorInfo(EXHAUSTED, "compute.googleapis.com", about | {"why": reason})
