"""Instances, templates, groups and policies over HTTP, as clients type them."""

from __future__ import annotations

from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build

from tests.yard import Yard

PROJECT, ZONE, REGION = "demo", "us-central1-b", "us-central1"
HERE = f"/compute/v1/projects/demo/zones/{ZONE}"
INSTANCES = f"{HERE}/instances"
GROUPS = f"{HERE}/instanceGroupManagers"
TEMPLATES = "/compute/v1/projects/demo/global/instanceTemplates"
POLICIES = f"/compute/v1/projects/demo/regions/{REGION}/resourcePolicies"
API = "https://www.googleapis.com/compute/v1/projects/demo"
# What `gcloud compute instances create` sends.
DISK = {
    "autoDelete": True,
    "boot": True,
    "initializeParams": {
        "diskSizeGb": "20",
        "sourceImage": f"{API.replace('demo', 'debian-cloud')}/global/images/family/debian-12",
    },
    "mode": "READ_WRITE",
    "type": "PERSISTENT",
}
NETWORK = {
    "accessConfigs": [{"name": "external-nat", "type": "ONE_TO_ONE_NAT"}],
    "network": f"{API}/global/networks/default",
}


def instance(name: str, machine: str = "e2-standard-4", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "machineType": f"{API}/zones/{ZONE}/machineTypes/{machine}",
        "disks": [DISK],
        "networkInterfaces": [NETWORK],
        **fields,
    }


def done(yard: Yard, operation: dict[str, Any]) -> dict[str, Any]:
    yard.step()
    found = yard.ok("GET", f"{HERE}/operations/{operation['name']}")
    assert found["status"] == "DONE"
    return found


def reason(yard: Yard, status: int, verb: str, path: str, body: Any = None) -> tuple[str, str]:
    response = yard.call(verb, path, body)
    error = response.json()["error"]
    assert response.status_code == status, response.text
    return error["errors"][0]["reason"], error["message"]


def test_an_instance_is_shown_as_it_was_asked_for(yard: Yard) -> None:
    begun = yard.ok(
        "POST",
        INSTANCES,
        instance(
            "vm",
            labels={"team": "a"},
            metadata={"items": [{"key": "startup-script", "value": "echo hello"}]},
            tags={"items": ["web"]},
            serviceAccounts=[
                {
                    "email": "default",
                    "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
                }
            ],
            scheduling={"automaticRestart": True},
        ),
    )
    assert begun["operationType"] == "insert"
    assert begun["targetLink"] == f"{API}/zones/{ZONE}/instances/vm"
    done(yard, begun)
    shown = yard.ok("GET", f"{INSTANCES}/vm")
    assert {name: shown[name] for name in ("kind", "status", "labels", "machineType")} == {
        "kind": "compute#instance",
        "status": "RUNNING",
        "labels": {"team": "a"},
        "machineType": f"{API}/zones/{ZONE}/machineTypes/e2-standard-4",
    }
    (nic,) = shown["networkInterfaces"]
    assert nic["networkIP"].startswith("10.128.")
    assert nic["accessConfigs"][0]["natIP"]
    (boot,) = shown["disks"]
    assert (boot["source"], boot["diskSizeGb"]) == (f"{API}/zones/{ZONE}/disks/vm", "20")
    disk = yard.ok("GET", f"{HERE}/disks/vm")
    assert disk["users"] == [f"{API}/zones/{ZONE}/instances/vm"]
    everywhere = yard.ok("GET", "/compute/v1/projects/demo/aggregated/instances")
    assert [one["name"] for one in everywhere["items"][f"zones/{ZONE}"]["instances"]] == ["vm"]
    for text in ("status=RUNNING", "labels.team=a", "(labels.team = a) AND (status = RUNNING)"):
        assert len(yard.ok("GET", f"{INSTANCES}?filter={text}")["items"]) == 1
    assert "items" not in yard.ok("GET", f"{INSTANCES}?filter=labels.team=b")
    assert yard.ok("GET", f"{HERE}/operations")["items"][0]["operationType"] == "insert"
    assert yard.ok("GET", f"/v2/projects/demo/locations/{ZONE}/operations") == {"operations": []}


def test_an_instance_is_changed_stopped_started_and_deleted(yard: Yard) -> None:
    done(yard, yard.ok("POST", INSTANCES, instance("vm")))
    shown = yard.ok("GET", f"{INSTANCES}/vm")
    labels = {"labels": {"x": "y"}, "labelFingerprint": shown["labelFingerprint"]}
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/setLabels", labels))
    assert reason(yard, 412, "POST", f"{INSTANCES}/vm/setLabels", labels)[0] == "conditionNotMet"
    metadata = {
        "fingerprint": shown["metadata"]["fingerprint"],
        "items": [{"key": "a", "value": "b"}],
    }
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/setMetadata", metadata))
    tags = {"fingerprint": shown["tags"]["fingerprint"], "items": ["web"]}
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/setTags", tags))
    yard.ok("POST", f"{HERE}/disks", {"name": "data", "sizeGb": "10"})
    attached = {"source": f"projects/demo/zones/{ZONE}/disks/data", "deviceName": "d"}
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/attachDisk", attached))
    changed = yard.ok("GET", f"{INSTANCES}/vm")
    assert (changed["labels"], changed["tags"]["items"]) == ({"x": "y"}, ["web"])
    assert changed["metadata"]["items"] == [{"key": "a", "value": "b"}]
    assert [one["deviceName"] for one in changed["disks"]] == ["persistent-disk-0", "d"]
    in_use = reason(yard, 400, "DELETE", f"{HERE}/disks/data")
    assert in_use[0] == "resourceInUseByAnotherResource"
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/detachDisk?deviceName=d"))
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/stop"))
    assert yard.ok("GET", f"{INSTANCES}/vm")["status"] == "TERMINATED"
    assert reason(yard, 400, "POST", f"{INSTANCES}/vm/reset")[0] == "resourceNotReady"
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/start"))
    done(yard, yard.ok("POST", f"{INSTANCES}/vm/reset"))
    done(yard, yard.ok("DELETE", f"{INSTANCES}/vm"))
    assert reason(yard, 404, "GET", f"{INSTANCES}/vm")[0] == "notFound"
    assert reason(yard, 404, "GET", f"{HERE}/disks/vm")[0] == "notFound"


def test_tpu_instances_are_bought_in_four_ways(yard: Yard) -> None:
    spot = {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
    }
    flex = {
        "provisioningModel": "FLEX_START",
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": "3600"},
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    }
    for name, scheduling in (("on-demand", {}), ("spot", spot), ("flex", flex)):
        body = instance(name, "ct6e-standard-4t", scheduling=scheduling)
        done(yard, yard.ok("POST", INSTANCES, body))
        shown = yard.ok("GET", f"{INSTANCES}/{name}")
        assert shown["status"] == "RUNNING"
        assert shown["guestAccelerators"] == [
            {
                "acceleratorType": f"{API}/zones/{ZONE}/acceleratorTypes/ct6e",
                "acceleratorCount": 4,
            }
        ]
        assert {**shown["scheduling"], **scheduling} == shown["scheduling"]
    begun = yard.ok("POST", f"{INSTANCES}/spot/simulateMaintenanceEvent")
    done(yard, begun)
    assert reason(yard, 404, "GET", f"{INSTANCES}/spot")[0] == "notFound"
    types = [one["operationType"] for one in yard.ok("GET", f"{HERE}/operations")["items"]]
    assert "compute.instances.preempted" in types


def slice_of(yard: Yard, topology: str = "4x4") -> dict[str, Any]:
    """A template, a policy, and the message of a group of the two."""
    properties = {
        "machineType": "ct6e-standard-4t",
        "disks": [DISK],
        "networkInterfaces": [NETWORK],
        "scheduling": {"onHostMaintenance": "TERMINATE"},
    }
    yard.ok("POST", TEMPLATES, {"name": "t", "properties": properties})
    workload = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": topology}
    yard.ok("POST", POLICIES, {"name": "p", "workloadPolicy": workload})
    return {
        "name": "g",
        "baseInstanceName": "g",
        "instanceTemplate": f"{API}/global/instanceTemplates/t",
        "targetSize": 4,
        "targetSizePolicy": {"mode": "BULK"},
        "resourcePolicies": {"workloadPolicy": f"{API}/regions/{REGION}/resourcePolicies/p"},
        "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"},
    }


def test_a_group_with_a_workload_policy_is_a_slice(yard: Yard) -> None:
    done(yard, yard.ok("POST", GROUPS, slice_of(yard)))
    shown = yard.ok("GET", f"{GROUPS}/g")
    assert shown["status"]["appliedAcceleratorTopologies"] == [
        {"acceleratorTopology": "4x4", "state": "ACTIVE"}
    ]
    assert (shown["status"]["isStable"], shown["targetSize"]) == (True, 4)
    managed = yard.ok("POST", f"{GROUPS}/g/listManagedInstances")["managedInstances"]
    assert [one["currentAction"] for one in managed] == ["NONE"] * 4
    assert {one["instanceStatus"] for one in managed} == {"RUNNING"}
    assert yard.ok("GET", f"{GROUPS}/g/listErrors") == {}
    assert yard.ok("GET", GROUPS)["items"][0]["name"] == "g"
    done(yard, yard.ok("POST", f"{GROUPS}/g/resize?size=0"))
    assert "items" not in yard.ok("GET", INSTANCES)
    assert reason(yard, 400, "POST", f"{GROUPS}/g/resize?size=3")[0] == "invalid"
    refused = reason(yard, 400, "POST", f"{GROUPS}/g/resizeRequests", {"resizeBy": 1})
    assert refused[1].startswith("Creating resize requests for managed instance group with TPU")
    in_use = reason(yard, 400, "DELETE", f"{TEMPLATES}/t")
    assert in_use[0] == "resourceInUseByAnotherResource"
    done(yard, yard.ok("DELETE", f"{GROUPS}/g"))
    for path in (f"{TEMPLATES}/t", f"{POLICIES}/p"):
        yard.ok("DELETE", path)
        assert reason(yard, 404, "GET", path)[0] == "notFound"


def test_a_regional_group_and_its_template(yard: Yard) -> None:
    body = slice_of(yard)
    region = f"/compute/v1/projects/demo/regions/{REGION}"
    template = yard.ok("GET", f"{TEMPLATES}/t")
    assert template["properties"]["machineType"] == "ct6e-standard-4t"
    copied = {"name": "t", "properties": template["properties"]}
    yard.ok("POST", f"{region}/instanceTemplates", copied)
    body["instanceTemplate"] = f"{API}/regions/{REGION}/instanceTemplates/t"
    yard.ok("POST", f"{region}/instanceGroupManagers", body)
    yard.step()
    shown = yard.ok("GET", f"{region}/instanceGroupManagers/g")
    assert (shown["region"], shown["status"]["isStable"]) == (f"{API}/regions/{REGION}", True)


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (instance("Vm"), 400, "invalid"),
        (instance("vm", "n9-standard-1"), 400, "invalid"),
        (instance("vm", "ct5p-hightpu-4t"), 400, "invalid"),
        (instance("vm", "n2d-standard-224"), 403, "quotaExceeded"),
        ({"name": "vm"}, 400, "required"),
        (instance("vm", nothing="x"), 400, "invalid"),
        (instance("vm", scheduling={"provisioningModel": "FLEX_START"}), 400, "invalid"),
        (instance("vm", "ct6e-standard-4t", resourcePolicies=["p"]), 400, "invalid"),
        (instance("vm", disks=[DISK, {"source": "zones/z/disks/none"}]), 404, "notFound"),
        (instance("vm", labels={"A": "b"}), 400, "invalid"),
    ],
)
def test_wrong_instances_are_refused(
    yard: Yard, body: dict[str, Any], status: int, why: str
) -> None:
    assert reason(yard, status, "POST", INSTANCES, body)[0] == why
    assert "items" not in yard.ok("GET", INSTANCES)
    assert "items" not in yard.ok("GET", f"{HERE}/disks")
    assert "items" not in yard.ok("GET", f"{HERE}/operations")


def test_names_zones_and_groups_that_are_wrong_are_refused(yard: Yard) -> None:
    yard.ok("POST", INSTANCES, instance("vm"))
    assert reason(yard, 409, "POST", INSTANCES, instance("vm"))[0] == "alreadyExists"
    nowhere = INSTANCES.replace(ZONE, "x-y1-z")
    assert reason(yard, 404, "POST", nowhere, instance("vm"))[0] == "notFound"
    body = slice_of(yard)
    single = {**body, "targetSizePolicy": {"mode": "INDIVIDUAL"}}
    assert "require BULK mode" in reason(yard, 400, "POST", GROUPS, single)[1]
    bare = {**body, "resourcePolicies": {"workloadPolicy": "p"}}
    assert reason(yard, 400, "POST", GROUPS, bare)[1].endswith("The URL is malformed.")
    missing = {**body, "instanceTemplate": f"{API}/global/instanceTemplates/none"}
    assert reason(yard, 404, "POST", GROUPS, missing)[0] == "notFound"


def test_googleapiclient_makes_several_at_once(yard: Yard) -> None:
    """SkyPilot's call."""
    body = {
        "count": "2",
        "instanceProperties": {
            "machineType": "e2-standard-2",
            "disks": [DISK],
            "networkInterfaces": [NETWORK],
        },
        "perInstanceProperties": {"head": {"name": "head"}, "worker": {"name": "worker"}},
    }
    options: dict[str, Any] = {
        "discoveryServiceUrl": f"{yard.url}/discovery/v1/apis/compute/v1/rest",
        "credentials": Credentials(yard.token),
        "static_discovery": False,
        "cache_discovery": False,
    }
    with build("compute", "v1", **options) as compute:
        place = {"project": PROJECT, "zone": ZONE}
        begun = compute.instances().bulkInsert(**place, body=body).execute()
        yard.step()
        ended = compute.zoneOperations().wait(**place, operation=begun["name"]).execute()
        assert (ended["status"], "error" in ended) == ("DONE", False)
        assert ended["operationType"] == "bulkInsert"
        listed = compute.instances().list(**place, filter="status = RUNNING").execute()
        assert [one["name"] for one in listed["items"]] == ["head", "worker"]
