"""SkyPilot: sky/provision/gcp/config.py, instance_utils.py, mig_utils.py, sky/clouds/gcp.py."""

from __future__ import annotations

from typing import Any

from tests.contract.launchers.replay import (
    ABSENT,
    IAM,
    IP,
    LINK,
    MANAGER,
    NUMBER,
    PROJECT,
    REGION,
    SERVICES,
    TPU,
    ZONE,
    C,
    Call,
    G,
    R,
    Z,
    a_list,
    absent,
    change,
    get,
    names,
    one_of,
    some,
)

EMAIL = f"skypilot-v1@{PROJECT}.iam.gserviceaccount.com"
WANTED = ["compute.instances.create", "compute.firewalls.create", "tpu.nodes.create"]
CHECK = [
    Call(
        "POST",
        f"{MANAGER}/projects/{PROJECT}:testIamPermissions",
        {"permissions": WANTED},
        {"permissions": WANTED},
    ),
    Call(
        "POST",
        f"{SERVICES}/projects/{PROJECT}/services:batchEnable",
        {"serviceIds": ["compute.googleapis.com", "tpu.googleapis.com"]},
        {"done": True},
    ),
]
RULE = {
    "name": "skypilot-vpc-allow-custom",
    "description": "Allows connections inside of the network.",
    "network": f"projects/{PROJECT}/global/networks/skypilot-vpc",
    "selfLink": f"projects/{PROJECT}/global/firewalls/skypilot-vpc-allow-custom",
    "direction": "INGRESS",
    "priority": 65534,
    "allowed": [
        {"IPProtocol": "tcp", "ports": ["0-65535"]},
        {"IPProtocol": "udp", "ports": ["0-65535"]},
        {"IPProtocol": "icmp"},
    ],
    "sourceRanges": ["10.128.0.0/9"],
}
VPC = {
    "name": "skypilot-vpc",
    "selfLink": f"projects/{PROJECT}/global/networks/skypilot-vpc",
    "autoCreateSubnetworks": True,
    "mtu": 1460,
    "routingConfig": {"routingMode": "GLOBAL"},
}
BOOTSTRAP = [
    get(f"{MANAGER}/projects/{PROJECT}", lifecycleState="ACTIVE", projectId=PROJECT),
    Call("GET", f"{MANAGER}/projects/not-there", fails=(403, "PERMISSION_DENIED", "")),
    Call(
        "GET",
        f"{IAM}/projects/{PROJECT}/serviceAccounts/{EMAIL}",
        fails=(404, "NOT_FOUND", ""),
    ),
    Call(
        "POST",
        f"{IAM}/projects/{PROJECT}/serviceAccounts",
        {"accountId": "skypilot-v1", "serviceAccount": {"displayName": "SkyPilot (v1)"}},
        {"email": EMAIL, "projectId": PROJECT},
    ),
    Call(
        "POST",
        f"{MANAGER}/projects/{PROJECT}:getIamPolicy",
        {},
        {"bindings": a_list},
        {"etag": "etag"},
    ),
    Call(
        "POST",
        f"{MANAGER}/projects/{PROJECT}:setIamPolicy",
        {
            "policy": {
                "etag": "$etag",
                "bindings": [
                    {"role": "roles/compute.admin", "members": [f"serviceAccount:{EMAIL}"]},
                ],
            }
        },
        {"bindings": some},
    ),
    get(f"{IAM}/roles/compute.admin", includedPermissions=some),
    Call(
        "GET",
        f"{R}/subnetworks",
        reads={"items.0.network": f"{LINK}/global/networks/default", "items.0.selfLink": some},
    ),
    Call(
        "GET",
        f"{G}/networks/default/getEffectiveFirewalls",
        reads={
            "firewalls.0.direction": "INGRESS",
            "firewalls.0.sourceRanges": some,
            "firewalls.0.allowed.0.IPProtocol": some,
            "firewalls.0.targetTags": ABSENT,
        },
    ),
    Call("GET", f"{G}/networks", query={"filter": "name=skypilot-vpc"}, reads={"items": ABSENT}),
    *change("POST", f"{G}/networks", VPC),
    Call(
        "GET",
        f"{G}/networks",
        query={"filter": "name=skypilot-vpc"},
        reads={"items": names("skypilot-vpc")},
    ),
    *change("POST", f"{G}/firewalls", RULE),
    Call(
        "GET",
        f"{G}/firewalls",
        query={"filter": "(name=skypilot-vpc-allow-custom)"},
        reads={"items": names("skypilot-vpc-allow-custom")},
    ),
    *change("DELETE", f"{G}/firewalls/skypilot-vpc-allow-custom"),
    absent(f"{G}/firewalls/skypilot-vpc-allow-custom"),
    *change(
        "POST",
        f"{R}/resourcePolicies",
        {"name": "c-placement-policy", "groupPlacementPolicy": {"collocation": "COLLOCATED"}},
    ),
    get(f"{R}/resourcePolicies/c-placement-policy", name="c-placement-policy"),
    absent(f"{R}/resourcePolicies/no-policy"),
]
LABELS = {"ray-cluster-name": "sky-c", "skypilot-cluster-name": "sky-c", "use": "head"}
DISK = {
    "boot": True,
    "autoDelete": True,
    "type": "PERSISTENT",
    "initializeParams": {
        "diskSizeGb": 256,
        "sourceImage": "projects/debian-cloud/global/images/family/debian-12",
        "diskType": "pd-balanced",
    },
}
INTERFACE = {
    "subnetwork": f"{LINK}/regions/{REGION}/subnetworks/default",
    "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
    "nicType": "gVNIC",
}
CONTROLLER: dict[str, Any] = {
    "labels": LABELS,
    "machineType": "n2-standard-8",
    "disks": [DISK],
    "networkInterfaces": [INTERFACE],
    "resourcePolicies": ["c-placement-policy"],
    "serviceAccounts": [
        {"email": EMAIL, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    ],
    "metadata": {"items": [{"key": "ssh-keys", "value": "gcpuser:ssh-rsa AAAA gcpuser"}]},
    "scheduling": {"onHostMaintenance": "TERMINATE"},
}
HEAD = "sky-c-head-0a1b-compute"
WORKER = "sky-c-worker-2c3d-compute"
RUNNING = "(status = PROVISIONING) OR (status = STAGING) OR (status = RUNNING)"
LISTED = f"((labels.ray-cluster-name = sky-c)) AND ({RUNNING} OR (status = REPAIRING))"
TPU_VM = [
    Call(
        "POST",
        f"{TPU}/nodes",
        {
            "acceleratorType": "v2-8",
            "runtimeVersion": "tpu-vm-base",
            "labels": LABELS,
            "networkConfig": {"enableExternalIps": True},
        },
        {"name": some, "done": one_of(False, True)},
        {"tpu_op": "name"},
        query={"nodeId": "sky-tpu"},
    ),
    Call("GET", "/v2/{tpu_op}", reads={"done": True, "error": ABSENT, "response": some}),
    Call("GET", f"{TPU}/nodes", reads={"nodes.0.state": "READY", "nodes.0.labels": LABELS}),
    Call(
        "GET",
        f"{TPU}/nodes/sky-tpu",
        reads={
            "networkConfig.network": some,
            "networkEndpoints.0.ipAddress": IP,
            "networkEndpoints.0.accessConfig.externalIp": IP,
        },
    ),
    Call(
        "PATCH",
        f"{TPU}/nodes/sky-tpu",
        {"labels": {**LABELS, "a": "b"}},
        {"name": some},
        query={"updateMask": "labels"},
    ),
    Call(
        "PATCH",
        f"{TPU}/nodes/sky-tpu",
        {"tags": ["sky-c"]},
        {"name": some},
        query={"updateMask": "tags"},
    ),
    Call("POST", f"{TPU}/nodes/sky-tpu:stop", {}, {"name": some}),
    Call("POST", f"{TPU}/nodes/sky-tpu:start", {}, {"name": some}),
    Call("DELETE", f"{TPU}/nodes/sky-tpu", reads={"name": some}),
]
VM = [
    *change(
        "POST",
        f"{Z}/instances/bulkInsert",
        {
            "count": 2,
            "instanceProperties": CONTROLLER,
            "sourceInstanceTemplate": None,
            "perInstanceProperties": {HEAD: {}, WORKER: {}},
        },
    ),
    Call("POST", "{op}/wait", reads={"status": "DONE", "error": ABSENT}),
    Call(
        "GET",
        f"{Z}/instances",
        query={"filter": LISTED},
        reads={"items": names(HEAD, WORKER), "items.0.labels": LABELS},
    ),
    Call(
        "GET",
        f"{Z}/instances/{HEAD}",
        reads={
            "networkInterfaces.0.networkIP": IP,
            "networkInterfaces.0.accessConfigs.0.natIP": IP,
            "networkInterfaces.0.network": f"{LINK}/global/networks/default",
            "networkInterfaces.0.nicType": "GVNIC",
            "disks.0.source": f"{LINK}/zones/{ZONE}/disks/{HEAD}",
            "labels": LABELS,
            "labelFingerprint": some,
            "tags.fingerprint": some,
            "resourcePolicies": [f"{LINK}/regions/{REGION}/resourcePolicies/c-placement-policy"],
        },
        keeps={"labels": "labelFingerprint", "tags": "tags.fingerprint"},
    ),
    *change(
        "POST",
        f"{Z}/instances/{HEAD}/setLabels",
        {"labels": {**LABELS, "ray-node-type": "head"}, "labelFingerprint": "$labels"},
    ),
    *change(
        "POST",
        f"{Z}/instances/{HEAD}/setTags",
        {"items": ["sky-c"], "fingerprint": "$tags"},
    ),
    Call(
        "GET",
        f"{Z}/instances",
        query={
            "filter": "((labels.ray-node-type = head) AND (labels.ray-cluster-name = sky-c))"
            f" AND ({RUNNING})"
        },
        reads={"items": names(HEAD), "items.0.tags.items": ["sky-c"]},
    ),
    Call("GET", f"{G}/firewalls/sky-ports", fails=(404, "notFound", "global/firewalls/sky-ports'")),
    *change(
        "POST",
        f"{G}/firewalls",
        {
            "name": "sky-ports",
            "network": f"projects/{PROJECT}/global/networks/default",
            "selfLink": f"projects/{PROJECT}/global/firewalls/sky-ports",
            "direction": "INGRESS",
            "priority": 65534,
            "allowed": [{"IPProtocol": "tcp", "ports": ["8080"]}],
            "sourceRanges": ["0.0.0.0/0"],
            "targetTags": ["sky-c"],
        },
    ),
    Call(
        "GET",
        f"{G}/firewalls/sky-ports",
        reads={"allowed.0.ports": ["8080"]},
        keeps={"network": "network", "id": "id"},
    ),
    *change(
        "PUT",
        f"{G}/firewalls/sky-ports",
        {
            "kind": "compute#firewall",
            "id": "$id",
            "name": "sky-ports",
            "network": "$network",
            "direction": "INGRESS",
            "priority": 65534,
            "allowed": [{"IPProtocol": "tcp", "ports": ["8080", "9090-9099"]}],
            "sourceRanges": ["0.0.0.0/0"],
            "targetTags": ["sky-c"],
            "logConfig": {"enable": False},
            "disabled": False,
        },
    ),
    *change("POST", f"{Z}/disks/{HEAD}/resize", {"sizeGb": "512"}),
    Call("POST", f"{Z}/disks/{HEAD}/resize", {"sizeGb": "512"}, fails=(400, "invalid", "")),
    *change("POST", f"{Z}/instances/{HEAD}/stop", discardLocalSsd="false"),
    Call(
        "GET",
        f"{Z}/instances",
        query={"filter": "(status = TERMINATED) OR (status = SUSPENDED)"},
        reads={"items": names(HEAD)},
    ),
    *change("POST", f"{Z}/instances/{HEAD}/start"),
    *change("DELETE", f"{Z}/instances/{WORKER}"),
    *change("DELETE", f"{Z}/instances/{HEAD}"),
    Call("DELETE", "{op}"),
    Call(
        "DELETE",
        f"{R}/resourcePolicies/c-placement-policy",
        reads={"status": "DONE"},
    ),
]
TEMPLATE = {
    "name": "sky-it-c",
    "properties": {
        **{name: value for name, value in CONTROLLER.items() if name != "resourcePolicies"},
        "description": "For the group of sky-c.",
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
        "serviceAccounts": [{"email": "default", "scopes": []}],
    },
}
GROUP = f"{Z}/instanceGroupManagers/sky-mig-c"
MIG = [
    absent(f"{R}/instanceTemplates/sky-it-c"),
    absent(GROUP),
    *change("POST", f"{R}/instanceTemplates", TEMPLATE),
    *change(
        "POST",
        f"{Z}/instanceGroupManagers",
        {
            "name": "sky-mig-c",
            "instanceTemplate": f"projects/{PROJECT}/regions/{REGION}/instanceTemplates/sky-it-c",
            "target_size": 0,
            "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"},
            "updatePolicy": {"type": "OPPORTUNISTIC"},
        },
    ),
    *change(
        "POST",
        f"{GROUP}/resizeRequests".replace("/v1/", "/beta/"),
        {"name": "sky-mig-c", "resizeBy": 2, "requestedRunDuration": {"seconds": 3600}},
    ),
    Call(
        "GET",
        GROUP,
        reads={
            "status.isStable": True,
            "targetSize": 2,
            "updatePolicy.type": "OPPORTUNISTIC",
            "currentActions.none": 2,
        },
    ),
    Call(
        "GET",
        f"{Z}/instances",
        query={"filter": f"((labels.ray-cluster-name = sky-c)) AND ({RUNNING})"},
        reads={"items.1.labelFingerprint": some, "items.2": ABSENT},
        keeps={"first": "items.0.name", "labels": "items.0.labelFingerprint"},
    ),
    *change(
        "POST",
        Z + "/instances/{first}/setLabels",
        {"labels": {**LABELS, "ray-node-type": "head"}, "labelFingerprint": "$labels"},
    ),
    Call(
        "GET",
        f"{Z}/instances",
        query={"filter": "labels.ray-node-type = head"},
        reads={"items.0.name": some, "items.1": ABSENT},
    ),
    Call(
        "GET",
        f"{GROUP}/resizeRequests".replace("/v1/", "/beta/"),
        query={"filter": "state eq ACCEPTED"},
        reads={"items": ABSENT},
    ),
    Call("GET", f"{GROUP}/resizeRequests", reads={"items.0.state": "SUCCEEDED"}),
    *change("DELETE", GROUP),
    Call("GET", f"{GROUP}/resizeRequests", fails=(404, "notFound", "instanceGroupManagers")),
    *change("DELETE", f"{R}/instanceTemplates/sky-it-c"),
    Call(
        "DELETE",
        f"{R}/instanceTemplates/sky-it-c",
        fails=(404, "notFound", f"regions/{REGION}/instanceTemplates/sky-it-c' was not found"),
    ),
]
VOLUMES = [
    absent(f"{Z}/disks/volume"),
    Call(
        "GET",
        f"{R}/disks/volume",
        fails=(404, "notFound", f"regions/{REGION}/disks/volume"),
    ),
    *change("POST", f"{Z}/disks", {"name": "volume", "sizeGb": 10}),
    get(f"{Z}/disks/volume", selfLink=f"{LINK}/zones/{ZONE}/disks/volume", id=NUMBER),
    Call("GET", f"{C}/aggregated/reservations", query={"filter": "status=READY"}, reads={}),
]
CALLS = [*CHECK, *BOOTSTRAP, *TPU_VM, *VM, *MIG, *VOLUMES]
