"""Marin's Iris: lib/iris/src/iris/cluster/providers/gcp/service.py."""

from __future__ import annotations

from tests.contract.launchers.replay import (
    ABSENT,
    IP,
    LINK,
    LOGGING,
    PROJECT,
    TIME,
    TPU,
    ZONE,
    C,
    Call,
    Z,
    absent,
    change,
    matching,
    names,
    some,
)

LABELS = {"iris-managed": "true", "iris-cluster": "c"}
NODE = {
    "acceleratorType": "v2-8",
    "runtimeVersion": "tpu-vm-base",
    "labels": LABELS,
    "metadata": {"startup-script": "true"},
    "schedulingConfig": {"preemptible": True},
    "networkConfig": {"enableExternalIps": True},
}
EVERYWHERE = f"/v2/projects/{PROJECT}/locations/-"
TPUS = [
    Call("POST", f"{TPU}/nodes", NODE, {"name": some}, {"tpu_op": "name"}, query={"nodeId": "s"}),
    Call("GET", "/v2/{tpu_op}", reads={"done": True, "error": ABSENT}),
    Call(
        "GET",
        f"{TPU}/nodes/s",
        reads={
            "state": "READY",
            "acceleratorType": matching("(.*/)?v2-8"),
            "labels": LABELS,
            "metadata": {"startup-script": "true"},
            "createTime": TIME,
            "networkEndpoints.0.ipAddress": IP,
            "serviceAccount.email": some,
        },
    ),
    Call(
        "GET",
        f"{EVERYWHERE}/nodes",
        reads={"nodes.0.name": f"projects/{PROJECT}/locations/{ZONE}/nodes/s"},
    ),
    Call("DELETE", f"{TPU}/nodes/s", reads={"name": some}),
    Call("DELETE", f"{TPU}/nodes/s", fails=(404, "NOT_FOUND", "")),
    Call(
        "POST",
        f"{TPU}/queuedResources",
        {
            "tpu": {
                "nodeSpec": [
                    {
                        "node": {
                            "acceleratorType": "v2-8",
                            "runtimeVersion": "tpu-vm-base",
                            "labels": LABELS,
                            "metadata": {},
                            "networkConfig": {"enableExternalIps": True},
                        },
                        "nodeId": "q",
                        "parent": f"projects/{PROJECT}/locations/{ZONE}",
                    }
                ]
            },
            "guaranteed": {"reserved": True},
        },
        {"name": some},
        query={"queuedResourceId": "q"},
    ),
    Call("GET", f"{TPU}/queuedResources/q", reads={"state.state": some}),
    Call(
        "GET",
        f"{EVERYWHERE}/queuedResources",
        reads={"queuedResources.0.tpu.nodeSpec.0.node.labels": LABELS},
    ),
    Call("DELETE", f"{TPU}/queuedResources/q", query={"force": "true"}, reads={"name": some}),
]
VM = {
    "name": "iris-controller-c",
    "machineType": f"zones/{ZONE}/machineTypes/n2-standard-4",
    "disks": [
        {
            "boot": True,
            "autoDelete": True,
            "initializeParams": {
                "diskSizeGb": "50",
                "diskType": f"zones/{ZONE}/diskTypes/pd-standard",
                "sourceImage": "projects/cos-cloud/global/images/family/cos-stable",
            },
        }
    ],
    "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
    "serviceAccounts": [
        {"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    ],
    "labels": LABELS,
    "metadata": {"items": [{"key": "startup-script", "value": "echo up"}]},
}
AT = f"{Z}/instances/iris-controller-c"
FILTER = {"filter": "labels.iris-managed=true AND labels.iris-cluster=c"}
VMS = [
    absent(AT),
    *change("POST", f"{Z}/instances", VM),
    Call("POST", f"{Z}/instances", VM, fails=(409, "alreadyExists", "already exists")),
    Call(
        "GET",
        AT,
        reads={
            "name": "iris-controller-c",
            "status": "RUNNING",
            "zone": f"{LINK}/zones/{ZONE}",
            "networkInterfaces.0.networkIP": IP,
            "networkInterfaces.0.accessConfigs.0.natIP": IP,
            "labels": LABELS,
            "metadata.items.0.key": "startup-script",
            "serviceAccounts.0.email": matching(r".+-compute@developer\.gserviceaccount\.com"),
            "creationTimestamp": TIME,
        },
        keeps={"labels": "labelFingerprint", "metadata": "metadata.fingerprint"},
    ),
    Call("GET", f"{Z}/instances", query=FILTER, reads={"items": names("iris-controller-c")}),
    Call(
        "GET",
        f"{C}/aggregated/instances",
        query=FILTER,
        reads={"items": lambda scopes: [*scopes] == [f"zones/{ZONE}"]},
    ),
    *change(
        "POST", f"{AT}/setLabels", {"labels": {**LABELS, "a": "b"}, "labelFingerprint": "$labels"}
    ),
    Call(
        "POST",
        f"{AT}/setLabels",
        {"labels": LABELS, "labelFingerprint": "$labels"},
        fails=(412, "conditionNotMet", "fingerprint"),
    ),
    *change(
        "POST",
        f"{AT}/setMetadata",
        {"fingerprint": "$metadata", "items": [{"key": "iris-address", "value": "10.0.0.1"}]},
    ),
    *change("POST", f"{AT}/reset"),
    Call(
        "GET",
        f"{AT}/serialPort",
        query={"start": "0"},
        reads={"contents": lambda text: isinstance(text, str), "next": some},
    ),
    *change("DELETE", AT),
    Call("DELETE", AT, fails=(404, "notFound", "iris-controller-c")),
    Call(
        "POST",
        f"{Z}/instances",
        {**VM, "machineType": f"zones/{ZONE}/machineTypes/n2d-standard-224"},
        fails=(403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: "),
    ),
]
LOGS = [
    Call(
        "POST",
        f"{LOGGING}/entries:list",
        {
            "resourceNames": [f"projects/{PROJECT}"],
            "filter": 'resource.type="tpu_worker" AND labels."x"="y"',
            "pageSize": 200,
            "orderBy": "timestamp desc",
        },
        {"error": ABSENT},
    ),
]
CALLS = [*TPUS, *VMS, *LOGS]
