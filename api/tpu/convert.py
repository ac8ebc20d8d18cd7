"""The border of Google's wire: messages to records and records to JSON. Nowhere else is the wire's spelling known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from podyard.api.tpu.messages import NodeMessage
from podyard.base.errors import PodyardError, invalid
from podyard.db import nodes as node_rows
from podyard.domain.fleet import region_of
from podyard.domain.node import HostRecord, Node, NodeSpec, UsageClass, kind_of
from podyard.domain.operation import Operation
from podyard.hardware import accelerator_types
from podyard.http.texts import check_description, check_labels

TPU_PORT = 8470  # the port that Cloud TPU shows on the wire; nothing listens there
_EXTRA_FIELDS = (
    "network_config",
    "network_configs",
    "service_account",
    "scheduling_config",
    "shielded_instance_config",
    "data_disks",
    "boot_disk_config",
)
# Which paths of an update mask may be set, by the record's name. Google refuses every other field.
PATCHABLE: Mapping[str, str] = {
    "description": "description",
    "labels": "labels",
    "metadata": "metadata",
    "tags": "tags",
    "data_disks": "dataDisks",
    "network_config": "networkConfig",
    "network_config.enable_external_ips": "networkConfig",
    "network_configs": "networkConfigs",
    "scheduling_config": "schedulingConfig",
}
DEFAULT_SCOPES = (
    "https://www.googleapis.com/auth/devstorage.read_write",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/service.management",
    "https://www.googleapis.com/auth/servicecontrol",
    "https://www.googleapis.com/auth/pubsub",
    "https://www.googleapis.com/auth/cloud-platform",
)


def from_api_node(message: NodeMessage) -> NodeSpec:
    config = message.accelerator_config
    if message.accelerator_type and config is not None:
        raise invalid("acceleratorType and acceleratorConfig exclude each other", "acceleratorConfig")
    if config is not None:
        kind = accelerator_types.from_config(config.type, config.topology)
    elif message.accelerator_type:
        kind = accelerator_types.parse(message.accelerator_type.rsplit("/", 1)[-1])
    else:
        raise invalid("acceleratorType or acceleratorConfig is required", "acceleratorType")
    if not message.runtime_version:
        raise invalid("runtimeVersion is required", "runtimeVersion")
    check_texts(message)
    extras = {}
    for name in _EXTRA_FIELDS:
        value = getattr(message, name)
        if value is not None:
            wire = type(message).model_fields[name].alias or name
            extras[wire] = [item.given() for item in value] if isinstance(value, list) else value.given()
    return NodeSpec(
        accelerator_type=kind.name,
        topology=kind.topology.text,
        runtime_version=message.runtime_version,
        usage_class=_usage_class(message),
        given_accelerator_config=config is not None,
        description=message.description or "",
        labels=message.labels or {},
        metadata=message.metadata or {},
        tags=tuple(message.tags or ()),
        cidr_block=message.cidr_block or "",
        extras=extras,
    )


def from_api_mask(text: str) -> list[str]:
    """The paths of an update mask in snake_case, whichever spelling they came in."""
    paths = [re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), path.strip()) for path in text.split(",")]
    return [path for path in paths if path]


def from_api_patch(message: NodeMessage, paths: list[str]) -> dict[str, Any]:
    """What `control.nodes.patch` shall set. Masked and absent means cleared; no mask means the fields that are set."""
    if not paths:
        paths = [name for name in PATCHABLE if name in message.model_fields_set]
        if not paths:
            raise invalid("updateMask is empty and the body sets no field that can be updated", "updateMask")
    check_texts(message)
    changes: dict[str, Any] = {}
    for path in paths:
        if path not in PATCHABLE:
            raise invalid(f"updateMask names {path!r}, which cannot be updated", "updateMask")
        name = path.split(".")[0]
        value = getattr(message, name)
        if name in ("description", "labels", "metadata", "tags"):
            changes[name] = value if value is not None else {"description": "", "tags": []}.get(name, {})
        elif isinstance(value, list):
            changes[PATCHABLE[path]] = [item.given() for item in value]
        else:
            changes[PATCHABLE[path]] = None if value is None else value.given()
    return changes


def to_api_node(node: Node, project_number: int, *, in_operation: bool = False) -> dict[str, Any]:
    """google.cloud.tpu.v2.Node as JSON. Inside an operation it has no `health`, as Google's has none, and only fields
    that the released client library knows, since that library refuses others there."""
    kind = kind_of(node.spec.accelerator_type, node.spec.topology)
    extras = dict(node.spec.extras)
    network = dict(extras.pop("networkConfig", {}))
    boot_disk = extras.pop("bootDiskConfig", None)
    external = bool(network.get("enableExternalIps"))
    answer: dict[str, Any] = {
        "name": node.name,
        "description": node.spec.description,
        "acceleratorType": node.spec.accelerator_type,
        "acceleratorConfig": {"type": kind.generation.wire_type, "topology": node.spec.topology},
        "state": node.state,
        "runtimeVersion": node.spec.runtime_version,
        "networkConfig": _network(node, network),
        "cidrBlock": node.spec.cidr_block,
        "serviceAccount": extras.pop("serviceAccount", None) or _service_account(project_number),
        "createTime": node.created.rfc3339(),
        "schedulingConfig": extras.pop("schedulingConfig", {}),
        "shieldedInstanceConfig": extras.pop("shieldedInstanceConfig", {}),
        "networkEndpoints": [_endpoint(host, external) for host in node.hosts],
        "labels": dict(node.spec.labels),
        "metadata": dict(node.spec.metadata),
        "tags": list(node.spec.tags),
        "id": str(node.number),
        "apiVersion": "V2",
        **extras,
    }
    if not in_operation:
        answer["bootDiskConfig"] = boot_disk
        if node.state == "READY":
            answer["health"] = "HEALTHY"
    # Unset fields are absent; messages that Google always sends stay even when they are empty.
    always = ("schedulingConfig", "shieldedInstanceConfig")
    return {name: value for name, value in answer.items() if value not in (None, "", [], {}) or name in always}


def to_api_operation(operation: Operation, project_number: int) -> dict[str, Any]:
    """google.longrunning.Operation in the version of the request's path: `done` is always there, nothing is null."""
    metadata = {
        "@type": "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata",
        "createTime": operation.created.rfc3339(),
        "target": operation.target_name,
        "verb": operation.verb,
        "apiVersion": "v2",
    }
    if operation.cancel_requested:
        metadata["cancelRequested"] = True  # type: ignore[assignment]
    answer: dict[str, Any] = {"name": operation.name, "metadata": metadata, "done": operation.done}
    if not operation.done:
        return answer
    assert operation.ended is not None
    metadata["endTime"] = operation.ended.rfc3339()
    if operation.error_code is not None:
        answer["error"] = {"code": operation.error_code, "message": operation.error_message}
        if operation.error_details:
            answer["error"]["details"] = list(operation.error_details)
    elif not operation.response:
        answer["response"] = {"@type": "type.googleapis.com/google.protobuf.Empty"}
    else:
        node = to_api_node(node_rows.thawed(operation.response), project_number, in_operation=True)
        answer["response"] = {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", **node}
    return answer


def check_texts(message: NodeMessage) -> None:
    check_description(message.description or "")
    check_labels(message.labels or {})


def _usage_class(message: NodeMessage) -> UsageClass:
    scheduling = message.scheduling_config
    if scheduling is None:
        return UsageClass.ON_DEMAND
    chosen = [name for name in ("preemptible", "reserved", "spot") if getattr(scheduling, name)]
    if len(chosen) > 1:
        raise _exclusive(chosen)
    return {"preemptible": UsageClass.PREEMPTIBLE, "reserved": UsageClass.RESERVED, "spot": UsageClass.SPOT}.get(
        "".join(chosen), UsageClass.ON_DEMAND
    )


def _exclusive(chosen: list[str]) -> PodyardError:
    return invalid(f"schedulingConfig: {' and '.join(chosen)} exclude each other", "schedulingConfig")


def _network(node: Node, network: Mapping[str, Any]) -> dict[str, Any]:
    name = str(network.get("network") or "default").rsplit("/", 1)[-1]
    subnetwork = str(network.get("subnetwork") or name).rsplit("/", 1)[-1]
    return {
        **network,
        "network": f"projects/{node.project}/global/networks/{name}",
        "subnetwork": f"projects/{node.project}/regions/{region_of(node.zone)}/subnetworks/{subnetwork}",
    }


def _endpoint(host: HostRecord, external: bool) -> dict[str, Any]:
    endpoint: dict[str, Any] = {"ipAddress": host.internal_ip, "port": TPU_PORT}
    if external:
        endpoint["accessConfig"] = {"externalIp": host.external_ip}
    return endpoint


def _service_account(project_number: int) -> dict[str, Any]:
    return {"email": f"{project_number}-compute@developer.gserviceaccount.com", "scope": list(DEFAULT_SCOPES)}
