"""Queued resources, reservations and their maintenance on Google's wire: messages to records and
records to JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from podyard.api.tpu import convert, reader
from podyard.api.wire.reader import duration_nanos
from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.errors import Code, invalid
from podyard.domain.node import UpcomingMaintenance, UsageClass
from podyard.domain.queued_resource import (
    QUEUED_RESOURCE_NODES_MAX,
    NodeRequest,
    QueuedResource,
    QueuedResourceSpec,
)
from podyard.domain.reservation import ReservationUse

_MODELS = {
    "STANDARD": UsageClass.ON_DEMAND,
    "SPOT": UsageClass.SPOT,
    "RESERVATION_BOUND": UsageClass.RESERVED,
    "FLEX_START": UsageClass.ON_DEMAND,
}
# far beyond any use, and what ends then can still be stored as a time
DURATION_SECONDS_MAX = 100 * 365 * 86400.0
_STATE_DATA = {
    "CREATING": "creatingData", "ACCEPTED": "acceptedData", "PROVISIONING": "provisioningData",
    "FAILED": "failedData", "DELETING": "deletingData", "ACTIVE": "activeData",
    "SUSPENDING": "suspendingData",
    "SUSPENDED": "suspendedData",
}  # fmt: skip


def from_api_queued_resource(
    version: str,
    message: Mapping[str, Any],
    project: str,
    zone: str,
    queued_resource_id: str,
    type_named: convert.TypeNamed,
) -> QueuedResourceSpec:
    """Return what a client asks for; `message` in the reader's canonical form. A request of one
    node that names it not gets the queued resource's id."""
    specs = message.get("tpu", {}).get("nodeSpec", [])
    if not specs:
        raise invalid("tpu.nodeSpec must name at least one node", "tpu.nodeSpec")
    chosen = _usage_class(message)
    nodes: list[NodeRequest] = []
    for index, spec in enumerate(specs):
        nodes += _nodes(
            version,
            spec,
            f"tpu.nodeSpec[{index}]",
            project,
            zone,
            queued_resource_id,
            chosen,
            type_named,
        )
    ids = [node.node_id for node in nodes]
    if len(set(ids)) < len(ids):
        raise invalid("tpu.nodeSpec has the same node id twice", "tpu.nodeSpec")
    if len(nodes) > QUEUED_RESOURCE_NODES_MAX:
        raise invalid(
            f"tpu.nodeSpec has {len(nodes)} nodes: the maximum is {QUEUED_RESOURCE_NODES_MAX}",
            "tpu.nodeSpec",
        )
    classes = {node.spec.usage_class for node in nodes}
    if len(classes) > 1:
        raise invalid(
            "all nodes of a queued resource must have the same schedulingConfig", "tpu.nodeSpec"
        )
    found = QueuedResourceSpec(
        nodes=tuple(nodes), usage_class=nodes[0].spec.usage_class, given=dict(message)
    )
    return _with_run_limit(_with_interval(found, message.get("queueingPolicy", {})), message)


def to_api_queued_resource(
    version: str, found: QueuedResource, *, in_operation: bool = False
) -> dict[str, Any]:
    state: dict[str, Any] = {"state": found.state if found.state != "GONE" else "DELETING"}
    if data := _STATE_DATA.get(state["state"]):
        state[data] = {}
    if found.state == "FAILED":
        error = {"code": found.error_code or int(Code.UNKNOWN), "message": found.error_message}
        if found.error_details:
            error["details"] = list(found.error_details)
        state["failedData"] = {"error": error}
    if found.state_initiator:
        state["stateInitiator"] = found.state_initiator
    shown = {
        **found.spec.given,
        "name": found.name,
        "createTime": found.created.rfc3339(),
        "state": state,
    }
    return reader.shape(
        version, "QueuedResource", _across(version, found.spec, shown), proto=in_operation
    )


def to_api_reservation(use: ReservationUse) -> dict[str, Any]:
    found = use.reservation
    interval = {
        name: moment.rfc3339()
        for name, moment in (("startTime", found.starts), ("endTime", found.ends))
        if moment is not None
    }
    return {
        "name": found.name,
        "state": found.state,
        "standard": {
            "size": found.size,
            "capacityUnits": found.units,
            "resourceType": found.generation,
            **({"interval": interval} if interval else {}),
            "usage": {"total": str(use.used)},
        },
    }


def to_api_maintenance_info(
    name: str, number: int, upcoming: UpcomingMaintenance | None
) -> dict[str, Any]:
    shown = {"nodeName": name, "nodeUid": str(number)}
    maintenance = convert.to_api_maintenance(upcoming)
    return shown if maintenance is None else {**shown, "upcomingMaintenance": maintenance}


def _nodes(  # noqa: PLR0913
    version: str,
    spec: Mapping[str, Any],
    path: str,
    project: str,
    zone: str,
    default_id: str,
    chosen: UsageClass | None,
    type_named: convert.TypeNamed,
) -> list[NodeRequest]:
    parent = spec.get("parent")
    here = f"projects/{project}/locations/{zone}"
    # Google's libraries may put the number of the project for its id; which project that is, the
    # path says.
    if parent not in (None, zone, here) and not re.fullmatch(
        rf"projects/\d+/locations/{re.escape(zone)}", parent
    ):
        raise invalid(
            f"{path}.parent is {parent!r}, but the queued resource is in {here}", f"{path}.parent"
        )
    if "node" not in spec:
        raise invalid(f"{path}.node is required", f"{path}.node")
    node = convert.from_api_node(version, spec["node"], type_named)
    if chosen is not None and node.usage_class not in (UsageClass.ON_DEMAND, chosen):
        raise invalid(
            f"{path}.node.schedulingConfig is {node.usage_class}, but the queued "
            f"resource is {chosen}",
            f"{path}.node.schedulingConfig",
        )
    if chosen is not None:
        node = dataclasses.replace(node, usage_class=chosen)
    name = next((found for found in ("multisliceParams", "multiNodeParams") if found in spec), None)
    if name is None:
        return [NodeRequest(spec.get("nodeId") or default_id, node)]
    several = spec[name]
    count = several.get("nodeCount", 0)
    # "This needs to be > 1" (google-cloud-tpu 1.28, MultisliceParams.node_count).
    if not 1 < count <= QUEUED_RESOURCE_NODES_MAX:
        allowed = f"> 1, and at most {QUEUED_RESOURCE_NODES_MAX}"
        raise invalid(
            f"{path}.{name}.nodeCount is {count}: this needs to be {allowed}",
            f"{path}.{name}.nodeCount",
        )
    prefix = several.get("nodeIdPrefix") or default_id
    return [NodeRequest(f"{prefix}-{index}", node, index, count) for index in range(count)]


def _usage_class(message: Mapping[str, Any]) -> UsageClass | None:
    """Return how the nodes are bought; None: as they say themselves. A tier without content
    ("spot": {}) counts."""
    found: list[tuple[str, UsageClass]] = []
    if "spot" in message:
        found.append(("spot", UsageClass.SPOT))
    if "bestEffort" in message:
        found.append(("bestEffort", UsageClass.PREEMPTIBLE))
    if "guaranteed" in message:
        reserved = message["guaranteed"].get("reserved") or message.get("reservationName")
        found.append(("guaranteed", UsageClass.RESERVED if reserved else UsageClass.ON_DEMAND))
    elif message.get("reservationName"):
        found.append(("reservationName", UsageClass.RESERVED))
    if model := message.get("provisioningModel"):
        found.append(("provisioningModel", _MODELS[model]))
    for name, wanted in found[1:]:
        if wanted is not found[0][1]:
            raise invalid(f"{found[0][0]} and {name} cannot be combined", name)
    return found[0][1] if found else None


def _with_interval(spec: QueuedResourceSpec, policy: Mapping[str, Any]) -> QueuedResourceSpec:
    seconds = {}
    for name in ("validAfterDuration", "validUntilDuration"):
        if name in policy:
            seconds[name] = _seconds(policy[name], f"queueingPolicy.{name}")
    interval = policy.get("validInterval", {})
    if "validInterval" in policy and not {"startTime", "endTime"} & set(interval):
        raise invalid(
            "queueingPolicy.validInterval needs startTime or endTime",
            "queueingPolicy.validInterval",
        )
    after = convert.moment(policy.get("validAfterTime") or interval.get("startTime"))
    until = convert.moment(policy.get("validUntilTime") or interval.get("endTime"))
    if after is not None and until is not None and until <= after:
        raise invalid(
            "queueingPolicy.validInterval must end after it starts", "queueingPolicy.validInterval"
        )
    return dataclasses.replace(
        spec,
        valid_after=after,
        valid_until=until,
        valid_after_seconds=seconds.get("validAfterDuration"),
        valid_until_seconds=seconds.get("validUntilDuration"),
    )


def _seconds(text: str | None, field: str) -> float | None:
    """The seconds of a duration, which must be positive."""
    if text is None:
        return None
    seconds = duration_nanos(text) / NANOS_PER_SECOND
    if not 0 < seconds <= DURATION_SECONDS_MAX:
        raise invalid(
            f"{field} is {text}: it must be positive, and at most {DURATION_SECONDS_MAX:.0f}s",
            field,
        )
    return seconds


def _with_run_limit(spec: QueuedResourceSpec, message: Mapping[str, Any]) -> QueuedResourceSpec:
    run = message.get("runDuration", {})
    guaranteed = message.get("guaranteed", {})
    limited = bool(run)
    if message.get("provisioningModel") == "FLEX_START" and not limited:
        raise invalid("runDuration is required with provisioningModel FLEX_START", "runDuration")
    return dataclasses.replace(
        spec,
        min_duration_seconds=_seconds(guaranteed.get("minDuration"), "guaranteed.minDuration"),
        max_run_seconds=_seconds(run.get("maxRunDuration"), "runDuration.maxRunDuration"),
        termination_time=convert.moment(run.get("terminationTime")),
        reservation_name=message.get("reservationName", ""),
    )


def _across(version: str, spec_record: QueuedResourceSpec, shown: dict[str, Any]) -> dict[str, Any]:
    """v2 says multisliceParams where v2alpha1 says multiNodeParams: each version shows its own
    word. Nodes show type and topology in both forms, whichever was sent."""
    mine, other = ("multisliceParams", "multiNodeParams")
    if version == "v2alpha1":
        mine, other = other, mine
    specs, first = [], 0
    for spec in shown.get("tpu", {}).get("nodeSpec", []):
        renamed = {mine if name == other else name: value for name, value in spec.items()}
        kind = convert.kind_message(spec_record.nodes[first].spec)
        specs.append({**renamed, "node": {**renamed.get("node", {}), **kind}})
        first += int(renamed.get(mine, {}).get("nodeCount", 1))
    return {**shown, "tpu": {"nodeSpec": specs}}
