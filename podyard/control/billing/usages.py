"""The use of a project, and its cost: the events of the database through the pure meter and
rating."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.control.billing import accounts
from podyard.db.billing import usage_events
from podyard.db.platform import state_changes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import NODE, SAY_LABELS, UsageClass
from podyard.domain.principal import Principal
from podyard.domain.state_change import StateChange
from podyard.domain.usage import BilledKind, BilledResource, LabelPeriod, UsageEvent, UsageRecord
from podyard.pricing.amounts import total
from podyard.pricing.bill import Resource, Use, charged_resources, resource_of, resources_of, use_of
from podyard.pricing.sku import RateCard

EVENTS_PAGE_MAX = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class NodeUsage:
    """The use of one node up to `as_of`. `price_nanos_per_hour` is the price now, of a node that
    has ended the price in its last second; None where no price covers it: `held_because`.

    `amount` and `records` are with the node's hosts, where they are charged apart: `has_hosts`. The
    node has one VM for each host; `host_seconds` are those of each of them, the price and the
    amount those of all.
    """

    resource_key: str
    name: str
    zone: str
    accelerator_type: str
    usage_class: UsageClass
    seconds: int
    waived_seconds: int
    waived_because: str
    estimated: bool
    created_by: str
    labels: Sequence[LabelPeriod]
    sku_id: str | None
    price_nanos_per_hour: int | None
    amount: Amount
    held_because: str | None
    first_second: int | None
    last_second: int | None
    records: Sequence[UsageRecord]
    has_hosts: bool = False
    host_sku_id: str | None = None
    host_price_nanos_per_hour: int | None = None
    host_seconds: int = 0
    host_held_because: str | None = None
    host_amount: Amount = dataclasses.field(default_factory=Amount)


@dataclasses.dataclass(frozen=True, slots=True)
class StorageUsage:
    """The use of a disk or bucket up to `as_of`, or the operations on a bucket; `gib_seconds`,
    `operations`: those that are charged or held."""

    resource_key: str
    kind: BilledKind
    name: str
    place: str
    type: str
    gib_seconds: int
    operations: int
    estimated: bool
    created_by: str
    labels: Sequence[LabelPeriod]
    sku_id: str | None
    amount: Amount
    held_because: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class ProjectUsage:
    """`storage`: disks, buckets and operations, as far as the rate card charges them."""

    as_of: PlatformTime
    nodes: Sequence[NodeUsage]
    storage: Sequence[StorageUsage]

    @property
    def seconds(self) -> int:
        return sum(node.seconds for node in self.nodes)

    @property
    def amount(self) -> Amount:
        nodes = sum(node.amount.parts for node in self.nodes)
        return Amount(nodes + sum(one.amount.parts for one in self.storage))


def usage(
    uow: UnitOfWork,
    card: RateCard,
    principal: Principal,
    project: str,
    node_name: str | None = None,
    resource_keys: Sequence[str] | None = None,
) -> ProjectUsage:
    """Usage and exact cost of every node, disk and bucket of the project, gone ones included, and
    of operations, up to now. What is in use is estimated.

    `node_name`, `resource_keys`: of these nodes only.
    """
    accounts.require_to_view(uow, principal, project, "usage")
    found: list[NodeUsage] = []
    storage: list[StorageUsage] = []
    read = usage_events.histories(
        uow, project, resource_keys, node_name, with_storage=card.charges_storage
    )
    for one, history in read:
        if not one.kind.is_storage:
            found.append(_node_usage(card, one, history, uow.now))
        elif charged_resources(card, [one]):
            storage.append(_storage_usage(card, one, history, uow.now))
    nodes = sorted(found, key=lambda node: (node.first_second or 0, node.resource_key))
    return ProjectUsage(
        uow.now, nodes, sorted(storage, key=lambda one: (one.kind, one.name, one.resource_key))
    )


def events(
    uow: UnitOfWork, principal: Principal, project: str, seq: int, limit: int, *, newest: bool
) -> tuple[list[StateChange], Mapping[str, tuple[Mapping[str, str], str]]]:
    """The project's state changes after number `seq` in order: what every bill can be computed from
    again. `newest`: those before it, the newest first.

    Of those that say so, by their ids: the labels of a node from then on, and who has created it.
    """
    principal.require("podyard.billing.view", project, f"projects/{project}/events")
    read = state_changes.of_project_before if newest else state_changes.of_project
    found = read(uow, project, seq, min(limit, EVENTS_PAGE_MAX))
    say = [
        change.event_id
        for change in found
        if change.machine == NODE.name and change.event in SAY_LABELS
    ]
    return found, usage_events.labels_and_creators(uow, say)


def _node_usage(
    card: RateCard, node: BilledResource, history: Sequence[UsageEvent], now: PlatformTime
) -> NodeUsage:
    resource, *apart = resources_of(card, charged_resources(card, [node])).values()
    use = use_of(resource, history, now)
    metered, sku = use.metered, resource.sku
    of_hosts = [use_of(host, history, now) for host in apart]
    records = [record for one in (use, *of_hosts) for record in one.rated.records]
    held_hosts = (held for one in of_hosts for held in one.rated.suspense)
    moment = _price_moment(use, now)
    host = next((one for one in apart if one.sku is not None), None)
    return NodeUsage(
        resource_key=node.key,
        name=node.name,
        zone=node.zone,
        accelerator_type=node.type,
        usage_class=node.usage_class,
        seconds=metered.seconds,
        waived_seconds=metered.waived_seconds,
        waived_because=_why_free(metered.waived_nanos) if metered.waived_seconds else "",
        estimated=metered.is_estimated,
        created_by=node.created_by,
        labels=node.labels,
        sku_id=None if sku is None else sku.sku_id,
        price_nanos_per_hour=_price_at(resource, moment),
        amount=total(records),
        held_because=next((held.reason for held in use.rated.suspense), None),
        first_second=metered.ranges[0].start if metered.ranges else None,
        last_second=metered.ranges[-1].stop - 1 if metered.ranges else None,
        records=records,
        has_hosts=bool(apart),
        host_sku_id=None if host is None or host.sku is None else host.sku.sku_id,
        host_price_nanos_per_hour=None if host is None else _price_at(host, moment),
        host_seconds=sum(one.metered.seconds for one in of_hosts),
        host_held_because=next((held.reason for held in held_hosts), None),
        host_amount=total(record for one in of_hosts for record in one.rated.records),
    )


def _storage_usage(
    card: RateCard, one: BilledResource, history: Sequence[UsageEvent], now: PlatformTime
) -> StorageUsage:
    resource = resource_of(card, one)
    use = use_of(resource, history, now)
    units = sum(len(seconds) * units for seconds, units in use.metered.parts(1))
    return StorageUsage(
        resource_key=one.key,
        kind=one.kind,
        name=one.name,
        place=one.zone,
        type=one.type,
        gib_seconds=units if one.kind.is_sized else 0,
        operations=0 if one.kind.is_sized else units,
        estimated=use.metered.is_estimated,
        created_by=one.created_by,
        labels=one.labels,
        sku_id=None if resource.sku is None else resource.sku.sku_id,
        amount=total(use.rated.records),
        held_because=next((held.reason for held in use.rated.suspense), None),
    )


def _why_free(nanos: int) -> str:
    return f"free: preempted {nanos // NANOS_PER_SECOND} s after it became READY"


def _price_at(resource: Resource, moment: PlatformTime) -> int | None:
    """Of all units of a resource, in nanos per hour."""
    version = None if resource.sku is None else resource.sku.version_at(moment)
    return None if version is None else version.nanos * resource.quantity


def _price_moment(use: Use, now: PlatformTime) -> PlatformTime:
    """A node that is metered on has the price of now, one that has ended that of its last
    second."""
    if use.metered.is_estimated or not use.metered.ranges:
        return now
    return PlatformTime((use.metered.ranges[-1].stop - 1) * NANOS_PER_SECOND)
