"""dstack: src/dstack/_internal/core/backends/gcp/resources.py and compute.py, by Google's client
`google-cloud-compute`, which asks with enums as text and polls operations by name."""

from __future__ import annotations

from typing import Any

from tests.contract.launchers.replay import (
    ABSENT,
    IP,
    LINK,
    PROJECT,
    REGION,
    ZONE,
    C,
    Call,
    G,
    R,
    Z,
    absent,
    change,
    get,
    some,
)

POLICY = f"projects/{PROJECT}/regions/{REGION}/resourcePolicies/group"
CHECK = [
    Call("GET", C, reads={"name": PROJECT}),
    Call("GET", "/compute/v1/projects/not-there", fails=(404, "notFound", "not-there")),
    Call("GET", f"{C}/regions", reads={"items.0.name": some, "items.0.quotas.0.metric": some}),
    Call("GET", R, reads={"zones": lambda zones: f"{LINK}/zones/{ZONE}" in zones}),
    Call(
        "GET",
        f"{C}/aggregated/subnetworks/listUsable",
        reads={
            "items.0.network": f"{LINK}/global/networks/default",
            "items.0.subnetwork": lambda url: url.endswith("/subnetworks/default"),
            "items.0.ipCidrRange": some,
        },
    ),
    Call("GET", f"{R}/routers", reads={"items": ABSENT, "kind": "compute#routerList"}),
    Call(
        "GET",
        f"{C}/aggregated/reservations",
        query={
            "filter": '(name = "r") AND (status = "READY") AND (specificReservationRequired = true)'
        },
        reads={"kind": "compute#reservationAggregatedList", "items": {}},
    ),
    *change(
        "POST",
        f"{G}/firewalls",
        {
            "name": "dstack-ssh-in-default",
            "direction": "INGRESS",
            "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
            "sourceRanges": ["0.0.0.0/0"],
            "network": "global/networks/default",
            "description": "Allowing only SSH connections from Internet.",
            "targetTags": ["dstack-runner-instance"],
        },
    ),
    Call(
        "POST",
        f"{G}/firewalls",
        {
            "name": "dstack-ssh-in-default",
            "allowed": [{"IPProtocol": "tcp"}],
            "network": "global/networks/default",
        },
        fails=(409, "alreadyExists", "already exists"),
    ),
]
INSTANCE: dict[str, Any] = {
    "name": "dstack-vm",
    "machineType": f"zones/{ZONE}/machineTypes/e2-standard-2",
    "networkInterfaces": [
        {
            "network": f"projects/{PROJECT}/global/networks/default",
            "subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/default",
            "accessConfigs": [
                {"type": "ONE_TO_ONE_NAT", "name": "External NAT", "networkTier": "PREMIUM"}
            ],
        }
    ],
    "disks": [
        {
            "autoDelete": True,
            "boot": True,
            "initializeParams": {
                "sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts",
                "diskSizeGb": "100",
                "diskType": f"zones/{ZONE}/diskTypes/pd-balanced",
            },
        }
    ],
    "metadata": {"items": [{"key": "user-data", "value": "#cloud-config"}]},
    "labels": {"owner": "dstack"},
    "tags": {"items": ["dstack-runner-instance"]},
    "scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "STOP"},
    "resourcePolicies": [POLICY],
}
AT = f"{Z}/instances/dstack-vm"
RUN = [
    *change(
        "POST",
        f"{R}/resourcePolicies",
        {
            "name": "group",
            "region": REGION,
            "groupPlacementPolicy": {"availabilityDomainCount": 1, "collocation": "COLLOCATED"},
        },
    ),
    *change("POST", f"{Z}/instances", INSTANCE),
    Call(
        "GET",
        AT,
        reads={
            "status": "RUNNING",
            "networkInterfaces.0.accessConfigs.0.natIP": IP,
            "networkInterfaces.0.networkIP": IP,
            "tags.items": ["dstack-runner-instance"],
            "resourcePolicies": [f"https://www.googleapis.com/compute/v1/{POLICY}"],
        },
    ),
    Call(
        "DELETE",
        f"/compute/v1/{POLICY}",
        fails=(400, "resourceInUseByAnotherResource", "is already being used by"),
    ),
]
DISK = f"{Z}/disks/dstack-volume"
VOLUME = [
    absent(DISK),
    *change(
        "POST",
        f"{Z}/disks",
        {
            "name": "dstack-volume",
            "sizeGb": "100",
            "type": f"zones/{ZONE}/diskTypes/pd-balanced",
            "labels": {"owner": "dstack"},
        },
    ),
    Call(
        "POST",
        f"{Z}/disks",
        {"name": "dstack-volume", "sizeGb": "100"},
        fails=(409, "alreadyExists", "already exists"),
    ),
    Call(
        "GET",
        DISK,
        reads={"sizeGb": "100", "type": f"{LINK}/zones/{ZONE}/diskTypes/pd-balanced"},
        keeps={"disk": "selfLink"},
    ),
    *change(
        "POST",
        f"{AT}/attachDisk",
        {"source": "$disk", "autoDelete": False, "deviceName": "pd-dstack-volume"},
    ),
    get(DISK, users=[f"{LINK}/zones/{ZONE}/instances/dstack-vm"]),
    Call(
        "POST", f"{Z}/instances/none/attachDisk", {"source": "$disk"}, fails=(404, "notFound", "")
    ),
    *change("POST", f"{AT}/detachDisk", deviceName="pd-dstack-volume"),
    *change("DELETE", DISK),
    Call("DELETE", DISK, fails=(404, "notFound", "dstack-volume")),
]
END = [
    *change("DELETE", AT),
    absent(AT),
    *change("DELETE", f"/compute/v1/{POLICY}"),
]
CALLS = [*CHECK, *RUN, *VOLUME, *END]
