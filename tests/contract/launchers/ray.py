"""Ray: python/ray/autoscaler/_private/gcp/config.py and node.py."""

from __future__ import annotations

from typing import Any

from tests.contract.launchers.replay import (
    ABSENT,
    IAM,
    IP,
    LINK,
    MANAGER,
    PROJECT,
    TPU,
    ZONE,
    C,
    Call,
    G,
    R,
    Z,
    a_list,
    change,
    get,
    names,
    some,
)

EMAIL = f"ray-autoscaler-sa-v1@{PROJECT}.iam.gserviceaccount.com"
BOOTSTRAP = [
    get(f"{MANAGER}/projects/{PROJECT}", lifecycleState="ACTIVE", projectId=PROJECT),
    Call("GET", f"{IAM}/projects/{PROJECT}/serviceAccounts/{EMAIL}", fails=(404, "NOT_FOUND", "")),
    Call(
        "POST",
        f"{IAM}/projects/{PROJECT}/serviceAccounts",
        {
            "accountId": "ray-autoscaler-sa-v1",
            "serviceAccount": {"displayName": "Ray Autoscaler Service Account (v1)"},
        },
        {"email": EMAIL, "projectId": PROJECT},
    ),
    Call(
        "POST",
        f"{MANAGER}/projects/{PROJECT}:getIamPolicy",
        {},
        {"bindings": a_list},
    ),
    Call(
        "GET", C, reads={"commonInstanceMetadata": lambda value: value is not None, "name": PROJECT}
    ),
    *change(
        "POST",
        f"{C}/setCommonInstanceMetadata",
        {
            "kind": "compute#metadata",
            "items": [{"key": "ssh-keys", "value": "ubuntu:ssh-rsa AAAA ubuntu"}],
        },
    ),
    Call("GET", C, reads={"commonInstanceMetadata.items.0.key": "ssh-keys"}),
    Call("GET", f"{R}/subnetworks", reads={"items.0.selfLink": some}),
]
NAME = "ray-c-head-0a1b2c3d-compute"
LABELS = {"ray-node-type": "head", "ray-launch-config": "x", "ray-cluster-name": "c"}
HEAD: dict[str, Any] = {
    "name": NAME,
    "labels": LABELS,
    "machineType": f"zones/{ZONE}/machineTypes/n1-standard-2",
    "disks": [
        {
            "boot": True,
            "autoDelete": True,
            "type": "PERSISTENT",
            "initializeParams": {
                "diskSizeGb": 50,
                "sourceImage": "projects/debian-cloud/global/images/debian-12-bookworm-v20261001",
            },
        }
    ],
    "networkInterfaces": [
        {
            "subnetwork": f"{LINK}/regions/us-central1/subnetworks/default",
            "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
        }
    ],
    "serviceAccounts": [
        {"email": EMAIL, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    ],
    # Ray's examples have a list of one message.
    "scheduling": [{"preemptible": True}],
}
# The states are a set of Python's, and come in any order.
LISTED = (
    "((labels.ray-node-type = head) AND (labels.ray-launch-config = x)) AND "
    "((status = RUNNING) OR (status = PROVISIONING) OR (status = STAGING)) AND "
    "(labels.ray-cluster-name = c)"
)
NODES = [
    *change("POST", f"{Z}/instances", HEAD),
    Call(
        "GET",
        f"{Z}/instances",
        query={"filter": LISTED},
        reads={
            "items": names(NAME),
            "items.0.status": "RUNNING",
            "items.0.networkInterfaces.0.networkIP": IP,
            "items.0.networkInterfaces.0.accessConfigs.0.natIP": IP,
        },
    ),
    Call(
        "GET",
        f"{Z}/instances",
        query={"filter": LISTED.replace("= c)", "= other)")},
        reads={"items": ABSENT},
    ),
    Call(
        "GET",
        f"{Z}/instances/{NAME}",
        reads={"labels": LABELS, "status": "RUNNING", "scheduling.preemptible": True},
        keeps={"fingerprint": "labelFingerprint"},
    ),
    *change(
        "POST",
        f"{Z}/instances/{NAME}/setLabels",
        {"labels": {**LABELS, "ray-node-status": "up-to-date"}, "labelFingerprint": "$fingerprint"},
    ),
    *change("DELETE", f"{Z}/instances/{NAME}"),
    Call("POST", f"{Z}/instances/{NAME}/stop", fails=(404, "notFound", f"instances/{NAME}'")),
]
TEMPLATED = [
    *change(
        "POST",
        f"{G}/instanceTemplates",
        {
            "name": "worker",
            "properties": {
                "machineType": "n1-standard-2",
                "disks": HEAD["disks"],
                "networkInterfaces": [{"network": "global/networks/default"}],
            },
        },
    ),
    *change(
        "POST",
        f"{Z}/instances",
        {
            "name": "ray-worker-compute",
            "machineType": f"zones/{ZONE}/machineTypes/e2-standard-4",
            "labels": LABELS,
        },
        sourceInstanceTemplate="global/instanceTemplates/worker",
    ),
    get(
        f"{Z}/instances/ray-worker-compute",
        machineType=f"{LINK}/zones/{ZONE}/machineTypes/e2-standard-4",
        labels=LABELS,
    ),
]
TPUS = [
    Call(
        "POST",
        f"{TPU}/nodes",
        {
            "acceleratorType": "v2-8",
            "runtimeVersion": "tpu-vm-base",
            "labels": LABELS,
            "networkConfig": {"enableExternalIps": True},
            "schedulingConfig": {"preemptible": True},
        },
        {"name": some},
        {"tpu_op": "name"},
        query={"nodeId": "ray-c-0a1b2c3d-tpu"},
    ),
    Call("GET", "/v2/{tpu_op}", reads={"response": some, "error": ABSENT}),
    Call(
        "GET",
        f"{TPU}/nodes",
        reads={
            "nodes.0.state": "READY",
            "nodes.0.networkEndpoints.0.ipAddress": IP,
            "nodes.0.networkEndpoints.0.accessConfig.externalIp": IP,
        },
    ),
    Call(
        "PATCH",
        f"{TPU}/nodes/ray-c-0a1b2c3d-tpu",
        {"labels": {**LABELS, "ray-node-status": "up"}},
        {"name": some},
        query={"updateMask": "labels"},
    ),
    Call("DELETE", f"{TPU}/nodes/ray-c-0a1b2c3d-tpu", reads={"name": some}),
]
CALLS = [*BOOTSTRAP, *NODES, *TEMPLATED, *TPUS]
