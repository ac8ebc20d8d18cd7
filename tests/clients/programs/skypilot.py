"""SkyPilot's provisioner for TPU VMs, as its backend calls it, with node configurations as its
`gcp-ray.yml.j2` has them."""

from __future__ import annotations

import os
import random
import subprocess
import time
from typing import Any

os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"

from answer import answer, error_of
from sky import clouds, resources
from sky.backends.cloud_vm_ray_backend import FailoverCloudErrorHandlerV2
from sky.provision import common
from sky.provision.gcp import config as bootstrap
from sky.provision.gcp import instance
from sky.provision.gcp.instance_utils import GCPTPUVMInstance

PROJECT = "demo"
PAUSE_SECONDS = 7  # of at most 32 between two tries of googleapiclient
# What googleapiclient draws for its pauses, of 0 to 1: 0.34 to 5.4 s, and so the last is longer
# than uvicorn's default.
DRAWN = 0.17


def launch(cluster: str, zone: str, kind: str, count: str, *flags: str) -> Any:
    """Return what `sky launch` does for the machines: [head, created, resumed], or what its
    failover makes of the failure.

    Flags: `spot`, `queued`.
    """
    node: dict[str, Any] = {
        "labels": {"skypilot-user": "somebody", "use-managed-instance-group": "0"},
        "acceleratorType": kind,
        "runtimeVersion": "tpu-vm-base",
        "metadata": {"ssh-keys": "gcpuser:ssh-ed25519 AAAA gcpuser"},
        "serviceAccount": {
            "email": f"skypilot-v1@{PROJECT}.iam.gserviceaccount.com",
            "scope": ["https://www.googleapis.com/auth/cloud-platform"],
        },
        "networkInterfaces": [{}],  # it writes those of Compute Engine too, and takes them out
        "networkConfig": {"enableExternalIps": True},
    }
    if "spot" in flags:
        node["schedulingConfig"] = {"preemptible": True}
    if "queued" in flags:
        random.random = lambda: DRAWN
        node["gcp_queued_resource"] = True
    config = common.ProvisionConfig(
        provider_config=_provider(zone),
        authentication_config={},
        docker_config={},
        node_config=node,
        count=int(count),
        tags={"team": "tests"},
        resume_stopped_nodes=True,
        ports_to_open_on_launch=None,
    )
    region = zone.rpartition("-")[0]
    try:
        made = instance.run_instances(region, cluster, cluster, config)
    except common.ProvisionerError as error:
        return {"errors": error.errors, "blocked": _blocked(kind, region, zone, error)}
    return {
        "head": made.head_instance_id,
        "created": sorted(made.created_instance_ids),
        "resumed": sorted(made.resumed_instance_ids),
    }


def machines(cluster: str, zone: str) -> Any:
    """Return what it knows of a running cluster: [[internal address, external address, labels],
    ...] by name."""
    found = instance.get_cluster_info(zone.rpartition("-")[0], cluster, _provider(zone))
    return {
        "head": found.head_instance_id,
        "machines": {
            name: [[item.internal_ip, item.external_ip, item.tags] for item in items]
            for name, items in found.instances.items()
        },
    }


def statuses(cluster: str, zone: str) -> Any:
    found = instance.query_instances(cluster, cluster, _provider(zone), non_terminated_only=False)
    return {name: status and status.value for name, (status, _) in found.items()}


def stop(cluster: str, zone: str) -> Any:
    instance.stop_instances(cluster, _provider(zone))


def terminate(cluster: str, zone: str) -> Any:
    instance.terminate_instances(cluster, _provider(zone))


def tag(name: str, zone: str) -> Any:
    """Network tags and labels, which it sets with a mask each, and the network's name."""
    for value in ("first", "second", "first"):
        GCPTPUVMInstance.add_network_tag_if_not_exist(PROJECT, zone, name, value)
    GCPTPUVMInstance.set_labels(PROJECT, zone, name, {"team": "others"})
    return GCPTPUVMInstance.get_vpc_name(PROJECT, zone, name)


def elsewhere(zone: str) -> Any:
    """A zone that is not there is one without nodes; a node that is not there is a separate
    error."""
    listed = GCPTPUVMInstance.filter(PROJECT, zone, None, None)
    name = f"projects/{PROJECT}/locations/us-central1-a/nodes/none"
    return [listed, error_of(lambda: GCPTPUVMInstance.get_vpc_name(PROJECT, zone, name))]


def pause(name: str, zone: str) -> Any:
    """Two requests of one client with `PAUSE_SECONDS` between them, as its retries after a 429 have
    them."""
    nodes = GCPTPUVMInstance.load_resource().projects().locations().nodes()
    nodes.get(name=name).execute()
    time.sleep(PAUSE_SECONDS)
    return nodes.patch(
        name=name, updateMask="labels", body={"labels": {"after": "pause"}}
    ).execute()["name"]


def check(key: str) -> Any:
    """Return what `sky check gcp` finds, and the account that it makes for its nodes, of the user
    of a key file."""
    os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = key
    subprocess.run(
        ["gcloud", "auth", "activate-service-account", "--key-file", key],
        check=True,
        capture_output=True,
    )
    found = [clouds.GCP._check_compute_credentials(), clouds.GCP._check_storage_credentials()]
    config = common.ProvisionConfig(
        provider_config=_provider("us-central1-a"),
        authentication_config={},
        docker_config={},
        node_config={"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"},
        count=1,
        tags={},
        resume_stopped_nodes=True,
        ports_to_open_on_launch=None,
    )
    manager, iam, *_ = bootstrap.construct_clients_from_provider_config(config.provider_config)
    role = bootstrap._configure_iam_role(config, manager, iam)
    return {"checks": found, "account": role["serviceAccount"]["email"]}


def _provider(zone: str) -> dict[str, Any]:
    return {
        "project_id": PROJECT,
        "availability_zone": zone,
        "region": zone.rpartition("-")[0],
        "_has_tpus": True,
    }


def _blocked(kind: str, region: str, zone: str, error: Exception) -> list[list[str | None]]:
    """[[region, zone], ...] that its failover leaves out from now on."""
    wanted = resources.Resources(
        cloud=clouds.GCP(),
        instance_type="TPU-VM",
        accelerators={f"tpu-{kind}": 1},
        region=region,
        zone=zone,
    )
    blocked: set[Any] = set()
    place = clouds.Region(region).set_zones([clouds.Zone(zone)])
    FailoverCloudErrorHandlerV2.update_blocklist_on_error(
        blocked, wanted, place, place.zones, error
    )
    return [[item.region, item.zone] for item in blocked]


answer(launch, machines, statuses, stop, terminate, tag, elsewhere, pause, check)
