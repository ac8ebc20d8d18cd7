"""What a project has used and what it costs: the events of the database through the pure meter and rating."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.control.billing import accounts
from podyard.db import state_changes, usage_events
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.domain.state_change import StateChange
from podyard.domain.usage import BilledNode, UsageEvent, UsageRecord
from podyard.pricing.amounts import total
from podyard.pricing.bill import Use, resource_of, use_of
from podyard.pricing.sku import RateCard

EVENTS_PAGE_MAX = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class NodeUsage:
    """What one node used up to `as_of`. `price_nanos_per_hour` is the price now, of a node that has ended the price in
    its last second; None where no price covers it: `held_because`."""

    resource_key: str
    name: str
    zone: str
    accelerator_type: str
    usage_class: UsageClass
    seconds: int
    waived_seconds: int
    estimated: bool
    sku_id: str | None
    price_nanos_per_hour: int | None
    amount: Amount
    held_because: str | None
    first_second: int | None
    last_second: int | None
    records: Sequence[UsageRecord] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ProjectUsage:
    as_of: PlatformTime
    nodes: Sequence[NodeUsage]

    @property
    def seconds(self) -> int:
        return sum(node.seconds for node in self.nodes)

    @property
    def amount(self) -> Amount:
        return Amount(sum(node.amount.parts for node in self.nodes))


def usage(
    uow: UnitOfWork,
    card: RateCard,
    principal: Principal,
    project: str,
    node_name: str | None = None,
    resource_keys: Sequence[str] | None = None,
) -> ProjectUsage:
    """Usage and exact cost of every node of the project, gone ones included, up to now. READY nodes are estimated.

    `node_name`, `resource_keys`: of these nodes only.
    """
    accounts.require_to_view(uow, principal, project, "usage")
    found = [
        _node_usage(card, node, history, uow.now)
        for node, history in usage_events.histories(uow, project, resource_keys, node_name)
    ]
    return ProjectUsage(uow.now, sorted(found, key=lambda node: (node.first_second or 0, node.resource_key)))


def events(uow: UnitOfWork, principal: Principal, project: str, after_seq: int, limit: int) -> list[StateChange]:
    """The project's state changes in order: what every bill can be computed from again."""
    principal.require("podyard.billing.view", project, f"projects/{project}/events")
    return state_changes.of_project(uow, project, after_seq, min(limit, EVENTS_PAGE_MAX))


def _node_usage(card: RateCard, node: BilledNode, history: Sequence[UsageEvent], now: PlatformTime) -> NodeUsage:
    resource = resource_of(card, node)
    use = use_of(resource, history, now)
    metered, rated, sku = use.metered, use.rated, resource.sku
    version = None if sku is None else sku.version_at(_price_moment(use, now))
    return NodeUsage(
        resource_key=node.key,
        name=node.name,
        zone=node.zone,
        accelerator_type=node.accelerator_type,
        usage_class=node.usage_class,
        seconds=metered.seconds,
        waived_seconds=metered.waived_seconds,
        estimated=metered.is_estimated,
        sku_id=None if sku is None else sku.sku_id,
        price_nanos_per_hour=None if version is None else version.nanos * resource.quantity,
        amount=total(rated.records),
        held_because=rated.suspense[0].reason if rated.suspense else None,
        first_second=metered.ranges[0].start if metered.ranges else None,
        last_second=metered.ranges[-1].stop - 1 if metered.ranges else None,
        records=rated.records,
    )


def _price_moment(use: Use, now: PlatformTime) -> PlatformTime:
    """A node that is metered on has the price of now, one that has ended that of its last second."""
    if use.metered.is_estimated or not use.metered.ranges:
        return now
    return PlatformTime((use.metered.ranges[-1].stop - 1) * NANOS_PER_SECOND)
