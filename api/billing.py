"""Podyard's own REST for usage, cost and events: `/podyard/v1/projects/{p}/...`, and prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import invalid
from podyard.base.money import minor_text
from podyard.control.billing import usages
from podyard.domain.fleet import region_of
from podyard.domain.job import JOB
from podyard.domain.node import UsageClass
from podyard.domain.state_change import StateChange
from podyard.domain.usage import LabelPeriod
from podyard.pricing.current_card import default_rate_card

router = APIRouter(prefix="/podyard/v1/projects/{project}", route_class=deps.Route)

AMOUNT_DECIMALS = 12  # as the worked cases print exact amounts
EVENTS_PAGE_DEFAULT = 1000
NODE: deps.Query = {
    "name": "node",
    "description": "Full name of the one node.",
    "schema": {"type": "string"},
}
USAGE: deps.Query = {
    "name": "usage",
    "description": f"How the node is bought; {UsageClass.ON_DEMAND} when it is left out.",
    "schema": {"type": "string", "enum": [str(usage) for usage in UsageClass]},
}


NEWEST: deps.Query = {
    "name": "newest",
    "description": "true: the newest first; else the oldest first.",
    "schema": {"type": "boolean"},
}


class HostUsageAnswer(TypedDict):
    """`seconds` are those of each VM; `pricePerHour` and `amount` are of all of them."""

    seconds: int
    amount: str
    sku: NotRequired[str]
    pricePerHour: NotRequired[str]
    heldBecause: NotRequired[str]


class LabelsAnswer(TypedDict):
    startTime: Timestamp
    labels: dict[str, str]


class NodeUsageAnswer(TypedDict):
    """Amounts and prices are decimal numbers as strings. `heldBecause`: why there is no price;
    `waivedBecause`: why seconds are free. `labels`: those that its use counts under, by time.
    `host`: one of the node's host VMs, where they are charged apart; `amount` is with all of
    them."""

    node: str
    key: str
    location: str
    acceleratorType: str
    usage: str
    seconds: int
    waivedSeconds: int
    waivedBecause: NotRequired[str]
    estimated: bool
    labels: list[LabelsAnswer]
    createdBy: NotRequired[str]
    amount: str
    sku: NotRequired[str]
    pricePerHour: NotRequired[str]
    heldBecause: NotRequired[str]
    host: NotRequired[HostUsageAnswer]
    firstSecond: NotRequired[Timestamp]
    lastSecond: NotRequired[Timestamp]


class StorageUsageAnswer(TypedDict):
    """A disk or bucket, or the operations of one class on a bucket (`kind`), where the rate card
    charges them. `type`: of the disk, the bucket's storage class, or the class of the operations
    with that; `gibSeconds`: up to the last whole day of what is less than a GiB of a bucket;
    `operations`: those of the past minutes may be missing."""

    resource: str
    key: str
    kind: str
    location: str
    type: str
    gibSeconds: NotRequired[int]
    operations: NotRequired[int]
    estimated: bool
    labels: list[LabelsAnswer]
    createdBy: NotRequired[str]
    amount: str
    sku: NotRequired[str]
    heldBecause: NotRequired[str]


class Usage(TypedDict):
    """`seconds`: of nodes; `amount`: of all."""

    asOf: Timestamp
    currency: str
    nodes: list[NodeUsageAnswer]
    storage: list[StorageUsageAnswer]
    seconds: int
    amount: str


class UsageEventAnswer(TypedDict):
    """A change of state; the first one of a resource is from no state. `labels`: those of a node
    from then on, where they are new. `createdBy`: of the first event of a node or job."""

    seq: int
    id: str
    kind: str
    key: str
    name: str
    version: int
    event: str
    fromState: str | None
    toState: str
    at: Timestamp
    reason: str
    actor: str
    labels: NotRequired[dict[str, str]]
    createdBy: NotRequired[str]


class EventList(deps.NextPage):
    events: list[UsageEventAnswer]


class PriceAnswer(TypedDict):
    """Of one node for one hour. `quantity` of the SKU's `unit`; `verified`: whether the price's
    source was checked."""

    sku: str
    unit: str
    quantity: int
    pricePerHour: str
    currency: str
    effectiveFrom: Timestamp
    verified: bool
    source: str


@router.get("/usage", openapi_extra=deps.asks(NODE))
def usage(request: Request, project: str) -> Usage:
    caller, node = deps.principal(request), request.query_params.get("node")
    found = deps.read(
        request, lambda uow: usages.usage(uow, default_rate_card(), caller, project, node)
    )
    return {
        "asOf": found.as_of.rfc3339(),
        "currency": "USD",
        "nodes": [to_api_usage(node) for node in found.nodes],
        "storage": [_storage_usage(one) for one in found.storage],
        "seconds": found.seconds,
        "amount": found.amount.text(AMOUNT_DECIMALS),
    }


@router.get("/events", openapi_extra=deps.asks(NEWEST, *deps.PAGING))
def events(request: Request, project: str) -> EventList:
    """The state changes in order, a page at a time: the record that the bill follows from."""
    caller = deps.principal(request)
    newest = deps.flag(request, "newest")
    seq = deps.page_after_number(request) or (deps.NUMBER_MAX if newest else 0)
    limit = deps.page_size(request) if "pageSize" in request.query_params else EVENTS_PAGE_DEFAULT
    found, told = deps.read(
        request, lambda uow: usages.events(uow, caller, project, seq, limit, newest=newest)
    )
    token = deps.page_token(str(found[-1].seq)) if len(found) == limit else None
    return {
        "events": [_event(change, told.get(change.event_id)) for change in found],
        **deps.next_page(token),
    }


@router.get("/locations/{zone}/prices/{accelerator_type}", openapi_extra=deps.asks(USAGE))
def price(request: Request, project: str, zone: str, accelerator_type: str) -> PriceAnswer:
    """The price per hour of one node of this type here and now. NOT_FOUND says why there is
    none."""
    deps.principal(request).require(
        "tpu.acceleratortypes.get", project, f"projects/{project}/locations/{zone}"
    )
    text = request.query_params.get("usage", str(UsageClass.ON_DEMAND))
    if text not in tuple(UsageClass):
        raise invalid(f"unknown usage {text!r}: use {', '.join(UsageClass)}", "usage")
    now: PlatformTime = deps.read(request, lambda uow: uow.now)
    found = default_rate_card().price(accelerator_type, region_of(zone), UsageClass(text), now)
    return {
        "sku": found.sku_id,
        "unit": str(found.unit),
        "quantity": found.quantity,
        "pricePerHour": minor_text(found.total_nanos_per_hour, 9),
        "currency": "USD",
        "effectiveFrom": found.effective_from.rfc3339(),
        "verified": found.verified,
        "source": found.source,
    }


def _host(node: usages.NodeUsage) -> HostUsageAnswer:
    answer: HostUsageAnswer = {
        "seconds": node.host_seconds,
        "amount": node.host_amount.text(AMOUNT_DECIMALS),
    }
    if node.host_sku_id is not None:
        answer["sku"] = node.host_sku_id
    if node.host_price_nanos_per_hour is not None:
        answer["pricePerHour"] = minor_text(node.host_price_nanos_per_hour, 9)
    if node.host_held_because is not None:
        answer["heldBecause"] = node.host_held_because
    return answer


def _event(change: StateChange, told: tuple[Mapping[str, str], str] | None) -> UsageEventAnswer:
    answer: UsageEventAnswer = {
        "seq": change.seq,
        "id": change.event_id,
        "kind": change.machine,
        "key": change.resource_key,
        "name": change.resource_name,
        "version": change.version,
        "event": change.event,
        "fromState": change.from_state,
        "toState": change.to_state,
        "at": change.at.rfc3339(),
        "reason": change.reason,
        "actor": change.actor,
    }
    if told is not None:
        answer["labels"] = dict(told[0])
    creator = (
        change.actor if (change.machine, change.event) == (JOB.name, "create") else told and told[1]
    )
    if creator:
        answer["createdBy"] = creator
    return answer


def _storage_usage(one: usages.StorageUsage) -> StorageUsageAnswer:
    answer: StorageUsageAnswer = {
        "resource": one.name,
        "key": one.resource_key,
        "kind": str(one.kind),
        "location": one.place,
        "type": one.type,
        "estimated": one.estimated,
        "labels": _label_periods(one.labels),
        "amount": one.amount.text(AMOUNT_DECIMALS),
    }
    if one.kind.is_sized:
        answer["gibSeconds"] = one.gib_seconds
    else:
        answer["operations"] = one.operations
    if one.created_by:
        answer["createdBy"] = one.created_by
    if one.sku_id is not None:
        answer["sku"] = one.sku_id
    if one.held_because is not None:
        answer["heldBecause"] = one.held_because
    return answer


def _label_periods(labels: Sequence[LabelPeriod]) -> list[LabelsAnswer]:
    return [
        {
            "startTime": PlatformTime(period.from_second * NANOS_PER_SECOND).rfc3339(),
            "labels": dict(period.labels),
        }
        for period in labels
    ]


def to_api_usage(node: usages.NodeUsage) -> NodeUsageAnswer:
    answer: NodeUsageAnswer = {
        "node": node.name,
        "key": node.resource_key,
        "location": node.zone,
        "acceleratorType": node.accelerator_type,
        "usage": str(node.usage_class),
        "seconds": node.seconds,
        "waivedSeconds": node.waived_seconds,
        "estimated": node.estimated,
        "labels": _label_periods(node.labels),
        "amount": node.amount.text(AMOUNT_DECIMALS),
    }
    if node.waived_because:
        answer["waivedBecause"] = node.waived_because
    if node.created_by:
        answer["createdBy"] = node.created_by
    if node.sku_id is not None and node.price_nanos_per_hour is not None:
        answer["sku"] = node.sku_id
        answer["pricePerHour"] = minor_text(node.price_nanos_per_hour, 9)
    if node.held_because is not None:
        answer["heldBecause"] = node.held_because
    if node.has_hosts:
        answer["host"] = _host(node)
    if node.first_second is not None and node.last_second is not None:
        answer["firstSecond"] = PlatformTime(node.first_second * NANOS_PER_SECOND).rfc3339()
        answer["lastSecond"] = PlatformTime(node.last_second * NANOS_PER_SECOND).rfc3339()
    return answer
