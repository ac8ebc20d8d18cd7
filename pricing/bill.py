"""The bill, as one pure function of events, prices, terms and a moment (rule R14 of the billing reference).

The invoice, its preview, what-if, replay and a virtual clock all call `compute`: the same inputs give the same bytes.
It meters resource by resource, so that only what a resource used stays in memory, not its events.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.base.intervals import Interval, union_of_seconds
from podyard.base.money import Amount
from podyard.domain import months
from podyard.domain.fleet import region_of
from podyard.domain.invoice import Adjustment, BillingPolicy, Commitment, Credit, Invoice, JobSpan
from podyard.domain.node import UsageClass
from podyard.domain.usage import BilledNode, Suspense, UsageEvent, UsageRecord
from podyard.pricing import attribution, budgets, commitments, invoicing
from podyard.pricing.amounts import cost_by_sku, total
from podyard.pricing.attribution import Share
from podyard.pricing.meter import Admitted, Metered, MeterPolicy, admit, clamp, meter_resource, node_policy
from podyard.pricing.rating import Rated, hold, rate
from podyard.pricing.sku import RateCard, Sku

NODE_KIND = "node"


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """What is billed: `quantity` units of a SKU while its states are those of the policy. `sku` None: nothing prices
    it, and all its seconds are held because of `held_because`."""

    resource_id: str
    kind: str
    sku: Sku | None
    quantity: int
    policy: MeterPolicy
    held_because: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """What an account has agreed to, and what was issued to it before.

    `jobs` None: nothing is attributed. `issued`: the totals of issued invoices by month, without the corrections that
    were booked in them; `adjusted`: what was already corrected of a month; both in minor units. `open_month`: where
    corrections are booked.
    """

    policy: BillingPolicy = dataclasses.field(default_factory=BillingPolicy)
    commitments: Sequence[Commitment] = ()
    credits: Sequence[Credit] = ()
    jobs: Sequence[JobSpan] | None = None
    budgets: Sequence[Amount] = ()
    issued: Mapping[str, int] = dataclasses.field(default_factory=dict)
    adjusted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    open_month: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Bill:
    """Everything that follows from the inputs of `compute`.

    `records` are used seconds at their prices; `charges` what is paid for: records less what commitments cover, and
    the commitments' own (resource and SKU `commitment:ID`). `open_since` names resources that were in use at `as_of`,
    so that their last seconds are estimates. `invoices` are the months as rated now, before `adjustments`.
    """

    as_of: PlatformTime
    policy: BillingPolicy
    seconds: Mapping[str, int]
    waived_seconds: Mapping[str, int]
    open_since: Mapping[str, PlatformTime]
    records: Sequence[UsageRecord]
    charges: Sequence[UsageRecord]
    suspense: Sequence[Suspense]
    quarantined: Sequence[str]
    cost_by_sku: Mapping[str, Amount]
    invoices: Sequence[Invoice]
    attribution: Mapping[str, Mapping[str, Share]]
    budget_stops: Sequence[PlatformTime | None]
    adjustments: Sequence[Adjustment]

    @property
    def total(self) -> Amount:
        """Exact, in US dollars: before credits and tax."""
        return total(self.charges)

    def invoice(self, month: str) -> Invoice | None:
        return next((invoice for invoice in self.invoices if invoice.month == month), None)


@dataclasses.dataclass(slots=True)
class _Used:
    seconds: dict[str, int]
    waived: dict[str, int]
    open_since: dict[str, PlatformTime]
    records: list[UsageRecord]
    suspense: list[Suspense]
    quarantined: list[str]


def compute(
    events: Iterable[UsageEvent],
    resources: Mapping[str, Resource],
    terms: Terms,
    as_of: PlatformTime,
    *,
    grouped: bool = False,
) -> Bill:
    """The bill of all use up to `as_of`.

    `events` come in order of arrival. `grouped`: they come resource by resource instead, each id once, as a table with
    unique keys gives them; then only one resource's events are in memory at a time. Raises INVALID_ARGUMENT for an
    event of an unknown resource, an unknown time zone, and what `attribution` and `invoicing` refuse.
    """
    months.check_zone(terms.policy.time_zone)
    used = _use(events, resources, as_of, grouped)
    charges = commitments.own_charges(terms.commitments, as_of)
    charges += commitments.cover(used.records, terms.commitments, as_of)
    invoices = invoicing.invoices(charges, terms.policy, terms.credits)
    shares: Mapping[str, Mapping[str, Share]] = {}
    if terms.jobs is not None:
        of_resources = (charge for charge in charges if charge.resource_id in resources)
        found = attribution.attribute(of_resources, terms.jobs, as_of)
        shares = {resource_id: found.get(resource_id, {}) for resource_id in sorted(resources)}
    return Bill(
        as_of=as_of,
        policy=terms.policy,
        seconds=used.seconds,
        waived_seconds=used.waived,
        open_since=used.open_since,
        records=tuple(used.records),
        charges=tuple(charges),
        suspense=tuple(used.suspense),
        quarantined=tuple(used.quarantined),
        cost_by_sku=cost_by_sku(charges),
        invoices=invoices,
        attribution=shares,
        budget_stops=tuple(budgets.stop_at(charges, amount) for amount in terms.budgets),
        adjustments=invoicing.adjustments(invoices, terms.issued, terms.adjusted, terms.open_month),
    )


def _use(events: Iterable[UsageEvent], resources: Mapping[str, Resource], as_of: PlatformTime, grouped: bool) -> _Used:
    """Seconds, records and what is held, of all resources in order of their ids."""
    names = sorted(resources)
    used = _Used(dict.fromkeys(names, 0), dict.fromkeys(names, 0), {}, [], [], [])
    by_resource: dict[str, tuple[list[UsageRecord], list[Suspense]]] = {}
    for admitted in _admit(events, grouped):
        used.quarantined += admitted.quarantined
        for resource_id, history in admitted.by_resource.items():
            resource = resources.get(resource_id)
            if resource is None:
                raise invalid(f"event {history[0].event_id} names the unknown resource {resource_id}", "events")
            if resource_id in by_resource:
                raise invalid(f"events of {resource_id} do not come together", "events")
            use = _price(resource, meter_resource(resource_id, history, resource.policy, as_of))
            metered, found = use.metered, use.rated
            used.seconds[resource_id] = metered.seconds
            used.waived[resource_id] = metered.waived_seconds
            if metered.open_since is not None:
                used.open_since[resource_id] = metered.open_since
            by_resource[resource_id] = (list(found.records), list(found.suspense))
    for resource_id in sorted(by_resource):
        records, suspense = by_resource.pop(resource_id)
        used.records += records
        used.suspense += suspense
    return used


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """What one resource used up to a moment, and the same at its prices."""

    metered: Metered
    rated: Rated


def use_of(resource: Resource, history: Sequence[UsageEvent], as_of: PlatformTime) -> Use:
    """`history`: the events of the resource in order of `seq`, each once."""
    return _price(resource, meter_resource(resource.resource_id, clamp(history), resource.policy, as_of))


def use_until(resource: Resource, before: Use, now: PlatformTime) -> Use:
    """The use of a resource that was in use when it was metered before, and has had no event since (R1, R10)."""
    metered = before.metered
    assert metered.open_since is not None
    touched = Interval(metered.open_since, now).touched_seconds()
    return _price(resource, dataclasses.replace(metered, ranges=tuple(union_of_seconds((*metered.ranges, touched)))))


def _price(resource: Resource, metered: Metered) -> Use:
    """Its seconds at their prices; without a price they are held."""
    if resource.sku is None:
        return Use(metered, hold(metered, resource.held_because))
    return Use(metered, rate(metered, resource.sku, resource.quantity))


def node_resource(key: str, sku: Sku | None, quantity: int, usage: UsageClass, held_because: str = "") -> Resource:
    """A node of a usage class. `sku` None: it has no price, as `held_because` says."""
    return Resource(key, NODE_KIND, sku, quantity, node_policy(usage), held_because)


def resource_of(card: RateCard, node: BilledNode) -> Resource:
    """What the node is sold as. Without a price its seconds are held, with the reason."""
    try:
        sku, quantity = card.sku_for(node.accelerator_type, region_of(node.zone), node.usage_class)
    except PodyardError as error:
        return node_resource(node.key, None, 1, node.usage_class, error.message)
    return node_resource(node.key, sku, quantity, node.usage_class)


def _admit(events: Iterable[UsageEvent], grouped: bool) -> Iterator[Admitted]:
    if not grouped:
        yield admit(events)
        return
    for _, history in itertools.groupby(events, key=lambda event: event.resource_id):
        yield admit(history)
