"""Ray's autoscaler for TPU nodes: its clients, its TPU resource, and its node provider on top of
both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from answer import answer, error_of
from ray.autoscaler._private.gcp.config import (
    bootstrap_gcp,
    construct_clients_from_provider_config,
)
from ray.autoscaler._private.gcp.node import GCPTPU, GCPTPUNode
from ray.autoscaler._private.gcp.node_provider import GCPNodeProvider

NODE = {"runtimeVersion": "tpu-vm-base", "networkInterfaces": [{}]}


def life(zone: str) -> Any:
    """One node through the TPU resource: create, get, label, stop, start, delete."""
    tpu = _tpu(zone, "life")
    config = {
        **NODE,
        "acceleratorType": "v2-8",
        "serviceAccounts": [{"email": "ray@demo", "scopes": ["all"]}],
    }
    made, node_id = tpu.create_instance(
        config, {"ray-node-name": "ray-life", "ray-node-type": "worker"}
    )
    name = made["response"]["name"]
    node = tpu.get_instance(name)
    assert isinstance(node, GCPTPUNode)
    seen = [_seen(node)]
    tpu.set_labels(node, {"ray-node-status": "up-to-date"})
    listed = [_seen(item) for item in tpu.list_instances({"ray-node-status": "up-to-date"})]
    tpu.stop_instance(name)
    seen.append(_seen(tpu.get_instance(name)))
    stopped = len(tpu.list_instances())
    tpu.start_instance(name)
    seen.append(_seen(tpu.get_instance(name)))
    deleted = tpu.delete_instance(name)
    return {
        "id": node_id,
        "name": name,
        "addresses": [node.get_internal_ip(), node.get_external_ip()],
        "seen": seen,
        "listed": listed,
        "listed_while_stopped": stopped,
        "deleted": deleted["response"],
        "left": len(tpu.list_instances()),
    }


def provider(zone: str, credentials: str) -> Any:
    """The node provider with a pod, told by its topology: what `ray up` and the autoscaler call."""
    tags = {"ray-node-name": "ray-pod", "ray-node-type": "worker", "ray-user-node-type": "tpu"}
    config = {
        **NODE,
        "runtimeVersion": "tpu-vm-v4-base",
        "acceleratorConfig": {"type": "V4", "topology": "2x2x2"},
    }
    found = GCPNodeProvider(_provider(zone, credentials), "pods")
    (made,) = found.create_node(config, tags, 1).values()
    (name,) = found.non_terminated_nodes({"ray-node-type": "worker"})
    found.set_node_tags(name, {"ray-launch-config": "abc"})
    found.non_terminated_nodes({})
    answered = {
        "response": made["response"]["name"],
        "name": name,
        "running": found.is_running(name),
        "tags": found.node_tags(name),
        "addresses": [found.internal_ip(name), found.external_ip(name)],
        "workers": found.cached_nodes[name].num_workers,
        "others": found.non_terminated_nodes({"ray-node-type": "head"}),
    }
    found.terminate_node(name)
    return answered | {"left": found.non_terminated_nodes({})}


def no_room(zone: str) -> Any:
    """The errors of operations and of requests, as it raises them."""
    tpu = _tpu(zone, "room")
    labels = {"ray-node-name": "ray-full"}
    first, _ = tpu.create_instance({**NODE, "acceleratorType": "v2-32"}, labels)
    full = error_of(lambda: tpu.create_instance({**NODE, "acceleratorType": "v2-32"}, labels))
    wrong = error_of(lambda: tpu.create_instance({**NODE, "acceleratorType": "v2-9"}, labels))
    tpu.delete_instance(first["response"]["name"])
    return {"full": full, "wrong": wrong}


def looked_at(name: str, zone: str) -> Any:
    """[running, terminated, nodes of its cluster that are not terminated]."""
    tpu = _tpu(zone, "any")
    node = tpu.get_instance(name)
    return [node.is_running(), node.is_terminated(), len(tpu.list_instances())]


def bootstrap(project: str) -> Any:
    """Run what `ray up` prepares before its first machine: the project, the account with its
    roles, the key pair."""
    provider = {"type": "gcp", "project_id": project, "region": "us-central1"}
    node = {**NODE, "acceleratorType": "v2-8"}
    config = bootstrap_gcp(
        {
            "provider": {**provider, "availability_zone": "us-central1-a"},
            "auth": {"ssh_user": "ubuntu"},
            "head_node_type": "head",
            "available_node_types": {"head": {"node_config": node, "resources": {"TPU": 1}}},
        }
    )
    head = config["head_node"]["serviceAccounts"][0]["email"]
    return {"email": head, "key": Path(config["auth"]["ssh_private_key"]).is_file()}


def _provider(zone: str, credentials: str) -> dict[str, Any]:
    """`credentials`: nothing for the environment's, `token`, or a key file."""
    found: dict[str, Any] = {"project_id": "demo", "availability_zone": zone, "_has_tpus": True}
    if credentials == "token":
        found["gcp_credentials"] = {
            "type": "credentials_token",
            "credentials": os.environ["PODYARD_TOKEN"],
        }
    elif credentials:
        found["gcp_credentials"] = {
            "type": "service_account",
            "credentials": Path(credentials).read_text(),
        }
    return found


def _tpu(zone: str, cluster: str) -> GCPTPU:
    *_, tpu = construct_clients_from_provider_config(_provider(zone, "token"))
    return GCPTPU(tpu, "demo", zone, cluster)


def _seen(node: GCPTPUNode) -> list[Any]:
    return [node["state"], node.is_running(), node.is_terminated(), node.get_labels()]


answer(life, provider, no_room, looked_at, bootstrap)
