"""Instances as Compute Engine shows them."""

from __future__ import annotations

from collections.abc import Iterator

from podyard.api.compute.call import Answer
from podyard.domain.compute.place import link, path_of
from podyard.domain.compute.resource import fingerprint_of
from podyard.domain.fleet import region_of
from podyard.domain.instances.instance import (
    POLICIES_FIELD,
    AttachedDisk,
    Instance,
    InstanceSpec,
    Interface,
    Scheduling,
)
from podyard.domain.instances.messages import EXTRA_FIELDS
from podyard.domain.node import UsageClass


def to_api_instance(shown: Instance) -> Answer:
    row, spec = shown.row, shown.spec
    zone = link(f"projects/{row.project}/zones/{row.zone}")
    node = shown.node
    answer: Answer = {
        "kind": "compute#instance",
        "id": str(row.number),
        "creationTimestamp": row.created.rfc3339(),
        "name": row.name,
        "description": spec.description,
        "machineType": f"{zone}/machineTypes/{spec.machine_type}",
        "status": shown.status.value,
        "zone": zone,
        "selfLink": f"{zone}/instances/{row.name}",
        "canIpForward": spec.can_ip_forward,
        "cpuPlatform": "Unknown CPU Platform",
        "deletionProtection": spec.deletion_protection,
        "startRestricted": False,
        "labels": dict(spec.labels),
        "labelFingerprint": shown.label_fingerprint,
        "tags": {"items": list(spec.tags), "fingerprint": shown.tag_fingerprint},
        "metadata": {
            "kind": "compute#metadata",
            "fingerprint": shown.metadata_fingerprint,
            "items": [{"key": key, "value": value} for key, value in sorted(spec.metadata.items())],
        },
        "scheduling": to_api_scheduling(spec.scheduling),
        "shieldedInstanceConfig": {**_SHIELDED, **spec.extras.get("shieldedInstanceConfig", {})},
        "shieldedInstanceIntegrityPolicy": {"updateAutoLearnPolicy": True},
        "networkInterfaces": [
            _interface(shown, one, number) for number, one in enumerate(spec.interfaces)
        ],
        "disks": list(_disks(shown, spec)),
        "guestAccelerators": _accelerators(shown, zone),
        "reservationAffinity": _affinity(spec),
    }
    more: Answer = {
        "statusMessage": shown.status_message,
        "hostname": spec.hostname,
        "lastStartTimestamp": "" if node.ready_since is None else node.ready_since.rfc3339(),
    }
    if spec.service_account or spec.scopes:
        email = spec.service_account or shown.default_account
        answer |= {"serviceAccounts": [{"email": email, "scopes": list(spec.scopes)}]}
    answer |= {
        name: spec.extras[name]
        for name in EXTRA_FIELDS
        if name in spec.extras and name not in answer
    }
    if spec.placement_policies:
        answer |= {POLICIES_FIELD: [link(path) for path in spec.placement_policies]}
    answer |= {name: value for name, value in more.items() if value}
    return answer | {"fingerprint": fingerprint_of([*spec.labels.items(), *spec.metadata.items()])}


# As a new instance has it (seen, August 2026).
_SHIELDED = {"enableIntegrityMonitoring": True, "enableSecureBoot": False, "enableVtpm": True}


def to_api_scheduling(scheduling: Scheduling) -> Answer:
    usage = scheduling.usage_class
    taken = usage in (UsageClass.SPOT, UsageClass.PREEMPTIBLE)
    restart = scheduling.automatic_restart
    answer: Answer = {
        "onHostMaintenance": scheduling.on_host_maintenance or "TERMINATE",
        "automaticRestart": (not taken) if restart is None else restart,
        "preemptible": scheduling.preemptible,
        "provisioningModel": scheduling.model.value,
    }
    if scheduling.termination_action is not None:
        answer |= {"instanceTerminationAction": scheduling.termination_action.value}
    if scheduling.max_run_seconds is not None:
        answer |= {"maxRunDuration": {"seconds": str(int(scheduling.max_run_seconds))}}
    return answer


def _interface(shown: Instance, asked: Interface, number: int) -> Answer:
    project, region = shown.row.project, region_of(shown.row.zone)
    network = _path(asked.network, project, "global/networks")
    subnetwork = _path(asked.subnetwork, project, f"regions/{region}/subnetworks")
    answer: Answer = {
        "kind": "compute#networkInterface",
        "name": f"nic{number}",
        "network": link(network),
        "subnetwork": link(subnetwork),
        "stackType": "IPV4_ONLY",
        **asked.extras,
        "fingerprint": fingerprint_of([network, subnetwork]),
    }
    if shown.internal_ip:
        answer |= {"networkIP": shown.internal_ip}
    if asked.has_external_ip:
        config = {
            "kind": "compute#accessConfig",
            "type": "ONE_TO_ONE_NAT",
            "name": asked.access_name,
            "networkTier": "PREMIUM",
            **asked.access,
        }
        address = {"natIP": shown.external_ip} if shown.external_ip else {}
        answer |= {"accessConfigs": [config | address]}
    return answer


def _path(asked: str, project: str, collection: str) -> str:
    path = path_of(asked)
    if path.startswith("projects/"):
        return path
    return f"projects/{project}/{collection}/{path.rpartition('/')[2] or 'default'}"


def _disks(shown: Instance, spec: InstanceSpec) -> Iterator[Answer]:
    row, boot = shown.row, spec.boot
    path = spec.boot_path(row.project, row.zone, row.name)
    first = AttachedDisk(path, device_name=boot.device, auto_delete=boot.auto_delete)
    for number, disk in enumerate((first, *spec.disks)):
        yield {
            "kind": "compute#attachedDisk",
            "type": "PERSISTENT",
            "mode": disk.mode,
            "source": link(disk.source),
            "deviceName": disk.device,
            "index": number,
            "boot": number == 0,
            "autoDelete": disk.auto_delete,
            "interface": "SCSI",
        } | ({"diskSizeGb": str(boot.size_gb)} if number == 0 else {})


def _accelerators(shown: Instance, zone: str) -> list[Answer]:
    machine = shown.spec.machine
    if not machine.has_chips:
        return []
    kind = f"{zone}/acceleratorTypes/{machine.accelerator}"
    return [{"acceleratorType": kind, "acceleratorCount": machine.chips}]


def _affinity(spec: InstanceSpec) -> Answer:
    if not spec.reservation_name:
        return {"consumeReservationType": "NO_RESERVATION"}
    return {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [spec.reservation_name.rpartition("/")[2]],
    }
