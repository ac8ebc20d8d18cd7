"""Permissions of Compute Engine's methods, in the names that Google's IAM gives them."""

from __future__ import annotations

_SEEN = (
    "acceleratorTypes", "addresses", "diskTypes", "disks", "firewalls", "futureReservations",
    "globalAddresses", "globalOperations", "images", "instanceGroupManagers", "instanceGroups",
    "instanceTemplates", "instances", "machineTypes", "networks", "regionOperations", "regions",
    "reservations", "resourcePolicies", "routers", "routes", "subnetworks", "zoneOperations",
    "zones",
)  # fmt: skip
_MADE = (
    "addresses", "disks", "firewalls", "futureReservations", "globalAddresses",
    "instanceGroupManagers",
    "instanceTemplates", "instances", "networks", "reservations", "resourcePolicies", "subnetworks",
)  # fmt: skip
_OPERATIONS = ("globalOperations", "regionOperations", "zoneOperations")

# Of instances: the serial port shows what scripts have written, so that viewers do not see it.
_OF_INSTANCES = (
    "addAccessConfig", "addResourcePolicies", "attachDisk", "deleteAccessConfig", "detachDisk",
    "getSerialPortOutput", "removeResourcePolicies", "reset", "resume", "setDeletionProtection",
    "setDiskAutoDelete", "setLabels", "setMachineType", "setMetadata", "setMinCpuPlatform",
    "setScheduling", "setServiceAccount", "setTags", "simulateMaintenanceEvent", "start", "stop",
    "suspend", "updateAccessConfig", "updateDisplayDevice", "updateShieldedInstanceConfig",
)  # fmt: skip

VIEW = frozenset(
    {
        "compute.projects.get",
        "compute.networks.getEffectiveFirewalls",
        "compute.instances.getGuestAttributes",
    }
    | {f"compute.{collection}.{verb}" for collection in _SEEN for verb in ("get", "list")}
)
EDIT = frozenset(
    {
        "compute.projects.setCommonInstanceMetadata",
        "compute.addresses.setLabels",
        "compute.globalAddresses.setLabels",
        "compute.networks.switchToCustomMode",
        "compute.subnetworks.expandIpCidrRange",
        "compute.subnetworks.setPrivateIpGoogleAccess",
    }
    | {f"compute.{collection}.delete" for collection in _OPERATIONS}
    | {f"compute.instances.{verb}" for verb in _OF_INSTANCES}
    | {
        f"compute.{collection}.{verb}"
        for collection in _MADE
        for verb in ("create", "delete", "update")
    }
)
