"""The border of Google's wire: messages to records and nodes to JSON. Nowhere else is the wire's
spelling known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from typing import Any

from podyard.api.tpu import reader
from podyard.api.tpu.schema import enums, messages
from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.base.spelling import camel_case
from podyard.domain.fleet import region_of
from podyard.domain.host import DEFAULT_SCOPES, default_service_account, nowhere
from podyard.domain.node import HEALTHY, Node, NodeHost, NodeSpec, UpcomingMaintenance, UsageClass
from podyard.hardware import accelerator_types
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.http.texts import check_description, check_labels, check_metadata, check_tags

TypeNamed = Callable[[str], AcceleratorType]

TPU_PORT = 8470  # the port that Cloud TPU shows on the wire; no TensorFlow runtime listens there
# the range of Google's default networks, which our nodes' addresses are from
CIDR_BLOCK = "10.128.0.0/9"
NETWORKS_MAX = 8  # network interfaces of a Compute Engine machine
# Fields that are kept as they came, and shown again.
_KEPT = (
    "networkConfig", "networkConfigs", "serviceAccount", "schedulingConfig",
    "shieldedInstanceConfig", "dataDisks",
    "bootDiskConfig", "autocheckpointEnabled", "network", "useServiceNetworking",
)  # fmt: skip
# What an update may set: fields that a released client (gcloud, SkyPilot, Ray, Terraform,
# google-cloud-tpu) sends.
PATCHABLE = (
    "description", "labels", "metadata", "tags", "dataDisks", "networkConfig",
    "networkConfig.enableExternalIps",
    "autocheckpointEnabled",
)  # fmt: skip
_CLEARED: Mapping[str, Any] = {"description": "", "labels": {}, "metadata": {}, "tags": []}
_API_VERSIONS = {"v1": "V1", "v1alpha1": "V1_ALPHA1", "v2": "V2", "v2alpha1": "V2_ALPHA1"}
_MODELS = {
    "STANDARD": UsageClass.ON_DEMAND,
    "SPOT": UsageClass.SPOT,
    "RESERVATION_BOUND": UsageClass.RESERVED,
}
# What is shown where nothing was said; STANDARD only where it was.
_MODEL_OF = {UsageClass.SPOT: "SPOT", UsageClass.RESERVED: "RESERVATION_BOUND"}


def is_v1(version: str) -> bool:
    return version in ("v1", "v1alpha1")


def from_api_node(version: str, message: Mapping[str, Any], type_named: TypeNamed) -> NodeSpec:
    """Return what a client asks for; `message` in the reader's canonical form. `type_named` finds
    the type of a name, and refuses a name in the words of the zone."""
    kind = _kind(message, type_named)
    software = "tensorflowVersion" if is_v1(version) else "runtimeVersion"
    if software not in message:
        raise invalid(f"{software} is required", software)
    check_texts(message)
    if "networkConfig" in message and "networkConfigs" in message:
        raise invalid("networkConfig and networkConfigs cannot be combined", "networkConfigs")
    if len(message.get("networkConfigs", ())) > NETWORKS_MAX:
        raise invalid(f"networkConfigs has more than {NETWORKS_MAX} entries", "networkConfigs")
    scheduling = message.get("schedulingConfig", {})
    return NodeSpec(
        accelerator_type=kind.name,
        topology=kind.topology.text,
        runtime_version=message[software],
        usage_class=usage_class(scheduling),
        description=message.get("description", ""),
        labels=message.get("labels", {}),
        metadata=message.get("metadata", {}),
        tags=tuple(message.get("tags", ())),
        cidr_block=message.get("cidrBlock", ""),
        extras={name: message[name] for name in _KEPT if name in message},
        api_version=_API_VERSIONS[version],
        reservation_name=scheduling.get("reservationName", ""),
    )


def from_api_mask(text: str) -> list[str]:
    """The paths of an update mask in camelCase, whichever spelling they came in."""
    paths = [re.sub(r"_([a-z])", lambda m: m[1].upper(), path.strip()) for path in text.split(",")]
    return [path for path in paths if path]


def from_api_patch(version: str, message: Mapping[str, Any], paths: list[str]) -> dict[str, Any]:
    """Return what an update sets: values by path, None for what is cleared. Masked and absent is
    cleared; `*` means every field that can be updated (AIP-134). The mask is required, as
    google/cloud/tpu/v2/cloud_tpu.proto says."""
    if not paths:
        raise invalid(
            "updateMask is required: name the fields to update, such as labels or metadata",
            "updateMask",
        )
    if "*" in paths:
        if len(paths) > 1:
            raise invalid(
                "updateMask: * means all fields and cannot be combined with others", "updateMask"
            )
        paths = [name for name in PATCHABLE if name in messages(version)["Node"].fields]
    check_texts(message)
    changes: dict[str, Any] = {}
    for path in paths:
        if path not in PATCHABLE:
            can = ", ".join(PATCHABLE)
            raise invalid(
                f"updateMask has {path!r}, which cannot be updated: use {can}", "updateMask"
            )
        value: Any = message
        for name in path.split("."):
            value = None if value is None else value.get(name)
        changes[path] = _CLEARED.get(path) if value is None else value
    return changes


def kind_message(spec: NodeSpec) -> dict[str, Any]:
    """The type in both forms; v1 leaves out the second one, which it has not."""
    generation = kind_of(spec.accelerator_type, spec.topology).generation
    return {
        "acceleratorType": spec.accelerator_type,
        "acceleratorConfig": {"type": generation.wire_type, "topology": spec.topology},
    }


def to_api_node(
    version: str, node: Node, project_number: int, *, in_operation: bool = False
) -> dict[str, Any]:
    """The node as JSON of this version. Inside an operation it has no `health`, as Google's has
    none, and only fields that the released client library knows, since that library refuses others
    there."""
    extras = dict(node.spec.extras)
    networks = extras.pop("networkConfigs", None) or [extras.pop("networkConfig", None) or {}]
    shown: dict[str, Any] = {
        "name": node.name,
        "description": node.spec.description,
        **kind_message(node.spec),
        "state": node.state if node.state != "GONE" else "DELETING",
        "cidrBlock": node.spec.cidr_block or CIDR_BLOCK,
        "createTime": node.created.rfc3339(),
        "networkEndpoints": [
            _endpoint(host, j, net) for host in node.hosts for j, net in enumerate(networks)
        ],
        "labels": dict(node.spec.labels),
        "apiVersion": _api_version(version, node.spec.api_version),
        "healthDescription": node.health_description,
        "symptoms": [
            {camel_case(key): value for key, value in one._asdict().items()}
            for one in node.symptoms
        ],
        **extras,
        "schedulingConfig": _scheduling(version, node),
    }
    if not in_operation and node.health and (node.state == "READY" or node.health != HEALTHY):
        shown["health"] = node.health
    if is_v1(version):
        shown |= _only_v1(node, project_number)
    else:
        shown |= {
            "runtimeVersion": node.spec.runtime_version,
            "serviceAccount": _service_account(node, project_number),
            "shieldedInstanceConfig": extras.get("shieldedInstanceConfig", {}),
            "metadata": dict(node.spec.metadata),
            "tags": list(node.spec.tags),
            "id": str(node.number),
            "queuedResource": node.queued_resource,
            "multisliceNode": node.multislice_node,
            "upcomingMaintenance": to_api_maintenance(node.upcoming_maintenance),
        }
        shown |= _networks(node, networks)
    # Unset fields are absent; messages that Google always sends stay even when they are empty.
    always = ("schedulingConfig", "shieldedInstanceConfig")
    found = {
        name: value
        for name, value in shown.items()
        if value not in (None, "", [], {}, False) or name in always
    }
    return reader.shape(version, "Node", found, proto=in_operation)


def to_api_maintenance(upcoming: UpcomingMaintenance | None) -> dict[str, Any] | None:
    if upcoming is None:
        return None
    return {
        "type": upcoming.type,
        "canReschedule": upcoming.can_reschedule,
        "windowStartTime": upcoming.window_start,
        "windowEndTime": upcoming.window_end,
        "latestWindowStartTime": upcoming.latest_window_start,
        "maintenanceStatus": upcoming.maintenance_status,
    }


def _scheduling(version: str, node: Node) -> dict[str, Any]:
    """Return how the node is bought, whether it said so itself or its queued resource did. `shape`
    leaves out what a version lacks. v1 has no `spot`: such a node is preemptible there, as spot VMs
    are in Compute Engine's API (from memory, unverified)."""
    usage = node.spec.usage_class
    shown: dict[str, Any] = {}
    if usage is UsageClass.SPOT and is_v1(version):
        shown["preemptible"] = True
    elif usage is not UsageClass.ON_DEMAND:
        shown[str(usage)] = True
    given: Mapping[str, Any] = node.spec.extras.get("schedulingConfig", {})
    if usage in _MODEL_OF:
        shown["provisioningModel"] = _MODEL_OF[usage]
    elif given.get("provisioningModel") == "STANDARD":
        shown["provisioningModel"] = "STANDARD"
    if node.spec.reservation_name:
        shown["reservationName"] = node.spec.reservation_name
    if node.termination is not None:
        shown["terminationTimestamp"] = node.termination.rfc3339()
    return shown


def usage_class(scheduling: Mapping[str, Any]) -> UsageClass:
    """Return how a node is bought; what contradicts itself is refused."""
    chosen = [name for name in ("preemptible", "reserved", "spot") if scheduling.get(name)]
    if len(chosen) > 1:
        raise invalid(
            f"schedulingConfig: {' and '.join(chosen)} cannot be combined", "schedulingConfig"
        )
    found = UsageClass(chosen[0]) if chosen else None
    if model := scheduling.get("provisioningModel"):
        wanted = _MODELS[model]
        if found not in (None, wanted):
            text = f"schedulingConfig: {chosen[0]} contradicts provisioningModel {model}"
            raise invalid(text, "schedulingConfig.provisioningModel")
        found = wanted
    if scheduling.get("reservationName"):
        if found not in (None, UsageClass.RESERVED):
            text = f"schedulingConfig: reservationName contradicts {found}"
            raise invalid(text, "schedulingConfig.reservationName")
        found = UsageClass.RESERVED
    return found or UsageClass.ON_DEMAND


def check_texts(message: Mapping[str, Any]) -> None:
    check_description(message.get("description", ""))
    check_labels(message.get("labels", {}))
    check_metadata(message.get("metadata", {}))
    check_tags(message.get("tags", ()))


def moment(text: str | None) -> PlatformTime | None:
    return None if text is None else PlatformTime.from_rfc3339(text)


def _service_account(node: Node, project_number: int) -> dict[str, Any]:
    account = node.spec.service_account
    return {
        "email": account.email or default_service_account(project_number),
        "scope": list(account.scopes or DEFAULT_SCOPES),
    }


def _kind(message: Mapping[str, Any], type_named: TypeNamed) -> AcceleratorType:
    config = message.get("acceleratorConfig")
    named = message.get("acceleratorType")
    if config is None:
        if named is None:
            raise invalid("acceleratorType or acceleratorConfig is required", "acceleratorType")
        return type_named(named.rsplit("/", 1)[-1])
    for name in ("type", "topology"):
        if name not in config:
            raise invalid(f"acceleratorConfig.{name} is required", f"acceleratorConfig.{name}")
    kind = accelerator_types.from_config(config["type"], config["topology"])
    if named is not None:
        other = type_named(named.rsplit("/", 1)[-1])
        if (other.generation, other.chip_count) != (kind.generation, kind.chip_count):
            raise invalid(
                f"acceleratorType {other.name} contradicts acceleratorConfig {config['type']} "
                f"{config['topology']}, "
                f"which is {kind.name}",
                "acceleratorConfig",
            )
    return kind


def _only_v1(node: Node, project_number: int) -> dict[str, Any]:
    """The fields of v1: a node that v2 made has them, too, since v1's clients (cloud-tpu-client,
    TensorFlow's
    resolver) read such nodes."""
    return {
        "tensorflowVersion": node.spec.runtime_version,
        "ipAddress": node.hosts[0].internal_ip if node.hosts else "",
        "port": str(TPU_PORT) if node.hosts else "",
        "network": _network_path(node.project, str(node.spec.extras.get("network", "default"))),
        "serviceAccount": _service_account(node, project_number)["email"],
    }


def _api_version(version: str, made_by: str) -> str:
    """Only v2 knows of V2: for the others such a node was made by the newest version that they
    know."""
    return made_by if made_by in enums(version)["Node.ApiVersion"] else "V2_ALPHA1"


def _networks(node: Node, networks: list[Mapping[str, Any]]) -> dict[str, Any]:
    full = []
    for network in networks:
        name = str(network.get("network") or "default")
        subnetwork = str(network.get("subnetwork") or name).rsplit("/", 1)[-1]
        place = f"projects/{node.project}/regions/{region_of(node.zone)}/subnetworks"
        paths = {
            "network": _network_path(node.project, name),
            "subnetwork": f"{place}/{subnetwork}",
        }
        full.append({**network, **paths})
    if "networkConfigs" in node.spec.extras:
        return {"networkConfigs": full}
    return {"networkConfig": full[0]}


def _network_path(project: str, name: str) -> str:
    return f"projects/{project}/global/networks/{name.rsplit('/', 1)[-1]}"


def _endpoint(host: NodeHost, index: int, network: Mapping[str, Any]) -> dict[str, Any]:
    """Host after host, each with one endpoint for each network. Each network has its own range."""
    endpoint: dict[str, Any] = {"ipAddress": _in_network(host.internal_ip, index), "port": TPU_PORT}
    if network.get("enableExternalIps"):
        # Only the first network's address leads to the host.
        external = (
            host.external_ip
            if index == 0
            else nowhere(int(IPv4Address(host.external_ip)) + (index << 12))
        )
        endpoint["accessConfig"] = {"externalIp": external}
    return endpoint


def _in_network(address: str, index: int) -> str:
    """The host's address in its network number `index`: 16 addresses of the second byte lie between
    two networks."""
    first, second, rest = address.split(".", 2)
    return f"{first}.{int(second) + 16 * index}.{rest}"
