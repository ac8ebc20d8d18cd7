"""Instances and policies read from messages of Compute Engine (Instance, InstanceProperties,
ResourcePolicy) in the canonical form of its API: without what is unset or has its default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.domain.compute.place import path_of, whole_path
from podyard.domain.compute.refusal import ComputeRefusal, Reason, field_required, invalid_value
from podyard.domain.disk import DEFAULT_DISK_TYPE, DISK_TYPES
from podyard.domain.fleet import region_of
from podyard.domain.instances.group import PolicySpec, PolicyType
from podyard.domain.instances.instance import (
    BOOT_DISK_GB,
    DEFAULT_BOOT,
    DEFAULT_IMAGE,
    POLICIES_FIELD,
    AttachedDisk,
    BootDisk,
    InstanceSpec,
    Interface,
    ProvisioningModel,
    Scheduling,
    TerminationAction,
)
from podyard.domain.reservation import reservation_name

Message = Mapping[str, Any]
NO_PLACEMENT = (
    "Resource policy must have one of [VmMaintenancePolicy, GroupPlacementPolicy, "
    "InstanceSchedulePolicy]"
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
_OTHER_POLICIES = ("snapshotSchedulePolicy", "instanceSchedulePolicy", "diskConsistencyGroupPolicy")


# What instances keep as it was said: their box is the same, whatever these say.
EXTRA_FIELDS = (
    "advancedMachineFeatures", "confidentialInstanceConfig", "displayDevice",
    "keyRevocationActionType", "minCpuPlatform", "networkPerformanceConfig",
    "privateIpv6GoogleAccess", POLICIES_FIELD, "shieldedInstanceConfig",
    "shieldedInstanceIntegrityPolicy",
)  # fmt: skip
_EXTRAS_OF_INTERFACE = ("aliasIpRanges", "nicType", "queueCount")
_EXTRAS_OF_ACCESS = ("name", "networkTier")


def read_instance(message: Message, project: str, zone: str) -> InstanceSpec:
    """The instance that an Instance or InstanceProperties asks for."""
    boot, disks = _read_disks(message.get("disks", ()), project, zone)
    accounts = message.get("serviceAccounts", ())
    if len(accounts) > 1:
        raise invalid_value("serviceAccounts", len(accounts), "An instance has one at most.")
    account: Message = accounts[0] if accounts else {}
    scheduling = read_scheduling(message.get("scheduling", {}), message.get("params", {}))
    machine = message.get("machineType", "").rpartition("/")[2]
    if not machine:
        raise field_required("machineType")
    return InstanceSpec(
        machine_type=machine,
        description=message.get("description", ""),
        labels=dict(message.get("labels", {})),
        metadata=read_metadata(message.get("metadata", {})),
        tags=tuple(message.get("tags", {}).get("items", ())),
        scheduling=scheduling,
        interfaces=_read_interfaces(message.get("networkInterfaces", ())),
        boot=boot,
        disks=disks,
        service_account=_email(account),
        scopes=tuple(account.get("scopes", ())),
        reservation_name=_read_affinity(message.get("reservationAffinity", {}), project, zone),
        deletion_protection=bool(message.get("deletionProtection")),
        can_ip_forward=bool(message.get("canIpForward")),
        hostname=message.get("hostname", ""),
        extras=_read_extras(message, project, zone),
    )


def write_instance(name: str, zone: str, spec: InstanceSpec) -> dict[str, Any]:
    """The Instance that asks for it: `read_instance` reads it back."""
    data: list[dict[str, Any]] = [
        {
            "autoDelete": one.auto_delete,
            "mode": one.mode,
            "initializeParams": {"diskSizeGb": str(one.new_gb), "diskType": one.new_type},
        }
        if one.new_gb
        else {"autoDelete": one.auto_delete, "mode": one.mode, "source": one.source}
        for one in spec.disks
    ]
    message: dict[str, Any] = {
        "name": name,
        "description": spec.description,
        "machineType": f"zones/{zone}/machineTypes/{spec.machine_type}",
        "disks": [_write_boot(spec.boot), *data],
        "networkInterfaces": [_write_interface(one) for one in spec.interfaces],
        "labels": dict(spec.labels),
        "tags": {"items": list(spec.tags)} if spec.tags else {},
        "scheduling": _write_scheduling(spec.scheduling),
    }
    if spec.metadata:
        items = [{"key": key, "value": value} for key, value in spec.metadata.items()]
        message["metadata"] = {"items": items}
    if spec.reservation_name:
        message["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [spec.reservation_name.rpartition("/")[2]],
        }
    if spec.scheduling.valid_for_seconds is not None:
        seconds = f"{spec.scheduling.valid_for_seconds:g}s"
        message["params"] = {"requestValidForDuration": seconds}
    return {key: value for key, value in message.items() if value}


def _write_boot(boot: BootDisk) -> dict[str, Any]:
    params = {
        "sourceImage": boot.image,
        "diskSizeGb": str(boot.size_gb),
        "diskType": boot.type,
    }
    return {"boot": True, "autoDelete": boot.auto_delete, "initializeParams": params}


def _write_interface(one: Interface) -> dict[str, Any]:
    message: dict[str, Any] = {"network": one.network or "global/networks/default"}
    if one.subnetwork:
        message["subnetwork"] = one.subnetwork
    if one.has_external_ip:
        message["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT"}]
    return message


def _write_scheduling(scheduling: Scheduling) -> dict[str, Any]:
    message: dict[str, Any] = {}
    if scheduling.model is not ProvisioningModel.STANDARD:
        message["provisioningModel"] = scheduling.model.value
    if scheduling.preemptible:
        message["preemptible"] = True
    if scheduling.termination_action is not None:
        message["instanceTerminationAction"] = scheduling.termination_action.value
    if scheduling.max_run_seconds is not None:
        message["maxRunDuration"] = {"seconds": f"{scheduling.max_run_seconds:g}"}
    if scheduling.automatic_restart is not None:
        message["automaticRestart"] = scheduling.automatic_restart
    if scheduling.on_host_maintenance:
        message["onHostMaintenance"] = scheduling.on_host_maintenance
    return message


def _read_extras(message: Message, project: str, zone: str) -> dict[str, Any]:
    fields = {name: message[name] for name in EXTRA_FIELDS if message.get(name)}
    if POLICIES_FIELD in fields and zone:
        fields |= {POLICIES_FIELD: policy_paths(fields[POLICIES_FIELD], project, zone)}
    return fields


def policy_paths(urls: Sequence[str], project: str, zone: str) -> list[str]:
    """Resource policies by path, each named by its name, a path or a URL."""
    here = f"projects/{project}/regions/{region_of(zone)}/resourcePolicies"
    return [
        path_of(url) if "projects/" in url else f"{here}/{url.rpartition('/')[2]}" for url in urls
    ]


def _email(account: Message) -> str:
    email: str = account.get("email", "")
    return "" if email == "default" else email


def read_metadata(message: Message) -> dict[str, str]:
    return {item.get("key", ""): item.get("value", "") for item in message.get("items", ())}


def read_scheduling(message: Message, params: Message) -> Scheduling:
    """`params`: of the instance, which say how long a request is valid."""
    duration = message.get("maxRunDuration")
    seconds = None
    if duration is not None:
        seconds = float(duration.get("seconds", 0)) + float(duration.get("nanos", 0)) / 1e9
    action = message.get("instanceTerminationAction")
    preemptible = bool(message.get("preemptible"))
    return Scheduling(
        model=ProvisioningModel(message.get("provisioningModel", ProvisioningModel.STANDARD)),
        preemptible=preemptible,
        termination_action=None if action is None else TerminationAction(action),
        max_run_seconds=seconds,
        valid_for_seconds=_read_valid_for(params),
        automatic_restart=message.get("automaticRestart"),
        on_host_maintenance=message.get("onHostMaintenance", ""),
    )


def _read_valid_for(params: Message) -> float | None:
    said = params.get("requestValidForDuration")
    if said is None:
        return None
    if isinstance(said, Mapping):
        return float(said.get("seconds", 0))
    match = _DURATION.fullmatch(str(said))
    if match is None:
        raise invalid_value("params.requestValidForDuration", said, "It is not a duration.")
    return float(match[1])


def _read_interfaces(messages: Sequence[Message]) -> tuple[Interface, ...]:
    interfaces = tuple(
        Interface(
            network=one.get("network", ""),
            subnetwork=one.get("subnetwork", ""),
            has_external_ip=bool(one.get("accessConfigs")),
            extras={name: one[name] for name in _EXTRAS_OF_INTERFACE if one.get(name)},
            access=read_access(next(iter(one.get("accessConfigs") or ()), {})),
        )
        for one in messages
    )
    return interfaces or (Interface(),)


def read_access(message: Message) -> dict[str, Any]:
    """The fields of an external address that are kept as they are."""
    return {name: message[name] for name in _EXTRAS_OF_ACCESS if message.get(name)}


def _read_disks(
    messages: Sequence[Message], project: str, zone: str
) -> tuple[BootDisk, tuple[AttachedDisk, ...]]:
    boots = [one for one in messages if one.get("boot")]
    if len(boots) > 1:
        raise invalid_value("disks", len(boots), "An instance has one boot disk.")
    boot = _read_boot(boots[0]) if boots else DEFAULT_BOOT
    others = [one for one in messages if not one.get("boot")]
    return boot, tuple(_read_data_disk(one, project, zone) for one in others)


def _read_boot(message: Message) -> BootDisk:
    params: Message = message.get("initializeParams", {})
    source: str = message.get("source", "")
    if source and params:
        why = "It excludes initializeParams."
        raise invalid_value("disks[0].source", source, why)
    size = params.get("diskSizeGb") or message.get("diskSizeGb") or BOOT_DISK_GB
    return BootDisk(
        image=path_of(params.get("sourceImage", "")) or DEFAULT_IMAGE,
        size_gb=int(size),
        type=params.get("diskType", "").rpartition("/")[2] or DEFAULT_BOOT.type,
        auto_delete=bool(message.get("autoDelete")),
        name=source.rpartition("/")[2] or params.get("diskName", ""),
        exists=bool(source),
        device_name=message.get("deviceName", ""),
        labels=params.get("labels"),
    )


def _read_data_disk(message: Message, project: str, zone: str) -> AttachedDisk:
    """A data disk of a new instance, which may be made with it."""
    params: Message | None = message.get("initializeParams")
    if params is None:
        return read_attached(message, project, zone)
    for field in ("sourceImage", "sourceSnapshot"):
        if params.get(field):
            why = "Data disks are made blank: leave it out."
            raise invalid_value(f"disks[1].initializeParams.{field}", params[field], why)
    name, kind = params.get("diskName", ""), params.get("diskType", "").rpartition("/")[2]
    default = DISK_TYPES.get(kind or DEFAULT_DISK_TYPE, 0)
    return AttachedDisk(
        source=f"projects/{project}/zones/{zone}/disks/{name}" if name else "",
        mode=message.get("mode", "READ_WRITE"),
        device_name=message.get("deviceName", ""),
        auto_delete=bool(message.get("autoDelete")),
        new_gb=int(params.get("diskSizeGb") or message.get("diskSizeGb") or default),
        new_type=kind or DEFAULT_DISK_TYPE,
    )


def read_attached(message: Message, project: str, zone: str) -> AttachedDisk:
    """A data disk that exists."""
    source: str = message.get("source", "")
    if not source:
        raise field_required("disks[1].source")
    path = whole_path(source, project)
    if "/" not in path:
        path = f"projects/{project}/zones/{zone}/disks/{path}"
    return AttachedDisk(
        source=path,
        mode=message.get("mode", "READ_WRITE"),
        device_name=message.get("deviceName", ""),
        auto_delete=bool(message.get("autoDelete")),
    )


def _read_affinity(message: Message, project: str, zone: str) -> str:
    """The name of the reservation that is to be used; empty: any, or none."""
    values = message.get("values", ())
    if message.get("consumeReservationType") != "SPECIFIC_RESERVATION" or not values:
        return ""
    return reservation_name(project, zone, values[0].rpartition("/")[2])


def read_policy(message: Message) -> PolicySpec:
    """A resource policy of a workload or of a placement."""
    workload: Message | None = message.get("workloadPolicy")
    placement: Message | None = message.get("groupPlacementPolicy")
    others = [name for name in _OTHER_POLICIES if name in message]
    if others or (workload is None) is (placement is None):
        named = f" (not {', '.join(others)})" if others else ""
        text = f"A resource policy has a workloadPolicy or a groupPlacementPolicy{named}"
        raise ComputeRefusal(Reason.INVALID, text)
    if workload is None:
        return PolicySpec()
    topology, distance = (
        workload.get("acceleratorTopology", ""),
        workload.get("maxTopologyDistance"),
    )
    if topology and distance:
        why = "It excludes maxTopologyDistance."
        raise invalid_value("workloadPolicy.acceleratorTopology", topology, why)
    kind = PolicyType(workload.get("type", PolicyType.HIGH_AVAILABILITY))
    return PolicySpec(kind, topology)
