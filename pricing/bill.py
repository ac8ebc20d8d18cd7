"""The bill, as one pure function of events, prices, terms and a moment (rule R14 of the billing
reference).

The invoice, its preview, what-if, replay and a virtual clock all call `compute`: the same inputs
give the same bytes. It meters resource by resource, so that only what a resource used stays in
memory, not its events.
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
from podyard.domain.invoice import Adjustment, BillingPolicy, Commitment, Credit, Invoice, JobSpan
from podyard.domain.node import UsageClass
from podyard.domain.usage import (
    BilledKind,
    BilledResource,
    Suspense,
    UsageEvent,
    UsageRecord,
    node_key_of,
)
from podyard.hardware.machine_types import billed_kind
from podyard.pricing import attribution, budgets, commitments, invoicing
from podyard.pricing.amounts import cost_by_sku, total
from podyard.pricing.attribution import Share
from podyard.pricing.meter import (
    COUNTED,
    DAY_SECONDS,
    SIZED,
    VM_MINIMUM_SECONDS,
    Admitted,
    Metered,
    MeterPolicy,
    admit,
    clamp,
    meter_resource,
    node_policy,
)
from podyard.pricing.rating import Rated, hold, rate
from podyard.pricing.sku import RateCard, Sku


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """A billed resource: `quantity` units of a SKU while its states are those of the policy. `sku`
    None: nothing prices it, and all its seconds are held because of `held_because`.

    `node`: the resource whose events and jobs are this one's, too. `since`: its seconds before that
    are free. `paid`: only these POSIX seconds are billed here; None: all are.
    """

    resource_id: str
    kind: str
    sku: Sku | None
    quantity: int
    policy: MeterPolicy
    held_because: str = ""
    node: str = ""
    since: PlatformTime | None = None
    paid: tuple[range, ...] | None = None

    @property
    def source(self) -> str:
        """The resource whose events these are."""
        return self.node or self.resource_id


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """The agreement of an account, and what was issued to it before.

    `jobs` None: nothing is attributed. `issued`: the totals of issued invoices by month, without
    the corrections that were booked in them; `adjusted`: what was already corrected of a month;
    both in minor units. `open_month`: where corrections are booked.
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

    `records` are used seconds at their prices; `charges` what is paid for: records less what
    commitments cover, and the commitments' own (resource and SKU `commitment:ID`). `open_since`
    names resources that were in use at `as_of`, so that their last seconds are estimates.
    `invoices` are the months as rated now, before `adjustments`.
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

    `events` come in order of arrival. `grouped`: they come resource by resource instead, each id
    once, as a table with unique keys gives them; then only one resource's events are in memory at a
    time. Raises INVALID_ARGUMENT for an event of an unknown resource, an unknown time zone, and
    what `attribution` and `invoicing` refuse.
    """
    months.check_zone(terms.policy.time_zone)
    used = _use(events, resources, as_of, grouped)
    charges = commitments.own_charges(terms.commitments, as_of)
    charges += commitments.cover(used.records, terms.commitments, as_of)
    invoices = invoicing.invoices(charges, terms.policy, terms.credits)
    shares: Mapping[str, Mapping[str, Share]] = {}
    if terms.jobs is not None:
        of_resources = (charge for charge in charges if charge.resource_id in resources)
        found = attribution.attribute(of_resources, extend_to_hosts(resources, terms.jobs), as_of)
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


def _use(
    events: Iterable[UsageEvent],
    resources: Mapping[str, Resource],
    as_of: PlatformTime,
    grouped: bool,
) -> _Used:
    """Seconds, records and what is held, of all resources in order of their ids."""
    names = sorted(resources)
    of_source: dict[str, list[Resource]] = {}
    for resource_id in names:
        of_source.setdefault(resources[resource_id].source, []).append(resources[resource_id])
    used = _Used(dict.fromkeys(names, 0), dict.fromkeys(names, 0), {}, [], [], [])
    by_resource: dict[str, tuple[list[UsageRecord], list[Suspense]]] = {}
    for admitted in _admit(events, grouped):
        used.quarantined += admitted.quarantined
        for source, history in admitted.by_resource.items():
            if source not in of_source:
                raise invalid(
                    f"event {history[0].event_id} names the unknown resource {source}", "events"
                )
            for resource in of_source[source]:
                resource_id = resource.resource_id
                if resource_id in by_resource:
                    raise invalid(f"events of {resource_id} do not come together", "events")
                use = _meter(resource, history, as_of)
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
    """The use of one resource up to a moment, and the same at its prices."""

    metered: Metered
    rated: Rated


def use_of(resource: Resource, history: Sequence[UsageEvent], as_of: PlatformTime) -> Use:
    """`history`: the events of the resource in order of `seq`, each once."""
    return _meter(resource, clamp(history), as_of)


def use_until(resource: Resource, before: Use, now: PlatformTime) -> Use:
    """The use of a resource that was in use when it was metered before, and has had no event since
    (R1, R10)."""
    metered = before.metered
    assert metered.open_since is not None
    touched = Interval(metered.open_since, now).touched_seconds()
    ranges = tuple(union_of_seconds((*metered.ranges, touched)))
    sizes = None if metered.sizes is None else metered.sizes.until(now)
    return _price(resource, dataclasses.replace(metered, ranges=ranges, sizes=sizes), now)


def _meter(resource: Resource, history: Sequence[UsageEvent], as_of: PlatformTime) -> Use:
    """`history`: with clamped times."""
    since = resource.since
    if since is not None and resource.policy.sized:
        # It is as if it had come to be then: the odd bytes of a day are those from then on.
        history = [dataclasses.replace(event, at=max(event.at, since)) for event in history]
    return _price(
        resource, meter_resource(resource.resource_id, history, resource.policy, as_of), as_of
    )


def _price(resource: Resource, metered: Metered, as_of: PlatformTime) -> Use:
    """Its seconds at their prices; without a price they are held."""
    if resource.since is not None:
        metered = metered.after(resource.since)
    if resource.paid is not None:
        metered = metered.within(resource.paid, as_of)
    if resource.sku is None:
        return Use(metered, hold(metered, resource.held_because))
    return Use(metered, rate(metered, resource.sku, resource.quantity))


def is_rest_of_day(resource: Resource, record: UsageRecord) -> bool:
    """Return whether the record is of the second in which a day's odd bytes are charged."""
    return resource.policy.sized and record.start_second % DAY_SECONDS == DAY_SECONDS - 1


def node_resource(
    key: str, sku: Sku | None, quantity: int, usage: UsageClass, held_because: str = ""
) -> Resource:
    """A node of a usage class. `sku` None: it has no price, as `held_because` says."""
    return Resource(key, BilledKind.NODE, sku, quantity, node_policy(usage), held_because)


def charged_resources(
    card: RateCard, resources: Iterable[BilledResource]
) -> dict[str, BilledResource]:
    """Return what is billed of these, by key: nodes; their host VMs, disks, buckets and operations
    where the card charges them."""
    found: dict[str, BilledResource] = {}
    for one in resources:
        if one.kind is BilledKind.NODE or card.charge_start(one.kind) is not None:
            found[one.key] = one
        if one.bills_hosts and card.hosts_from is not None:
            hosts = one.hosts()
            found[hosts.key] = hosts
    return found


def resources_of(card: RateCard, billed: Mapping[str, BilledResource]) -> dict[str, Resource]:
    return {key: resource_of(card, one) for key, one in billed.items()}


def extend_to_hosts(resources: Mapping[str, Resource], spans: Iterable[JobSpan]) -> list[JobSpan]:
    """The spans of jobs on resources, and on what belongs to these: a job on a node has its hosts,
    too (R12)."""
    more: dict[str, list[str]] = {}
    for key, resource in resources.items():
        if resource.node:
            more.setdefault(resource.node, []).append(key)
    found = list(spans)
    if more:
        found += [
            dataclasses.replace(s, resource_id=key)
            for s in found
            for key in more.get(s.resource_id, ())
        ]
    return found


def resource_of(card: RateCard, billed: BilledResource) -> Resource:
    """Return what it is sold as. Without a price the seconds are held, with the reason."""
    sku, quantity, why = None, 1, ""
    try:
        if billed.kind is BilledKind.NODE:
            sku, quantity = card.sku_for(billed.type, billed.region, billed.usage_class)
        else:
            sku = _sku_of(card, billed)
    except PodyardError as error:
        why = error.message
    if billed.kind is BilledKind.NODE:
        return node_resource(billed.key, sku, quantity, billed.usage_class, why)
    since = card.charge_start(billed.kind)
    if billed.kind.is_sized:
        return Resource(billed.key, billed.kind, sku, 1, SIZED, why, since=since)
    if billed.kind is BilledKind.OPERATION:
        return Resource(billed.key, billed.kind, sku, 1, COUNTED, why, since=since)
    # A VM for each host of a node: billed in the same states, with a minimum for each run (R2).
    policy = MeterPolicy(minimum_run_seconds=VM_MINIMUM_SECONDS)
    hosts = billed_kind(billed.type).host_count
    return Resource(
        billed.key, billed.kind, sku, hosts, policy, why, node_key_of(billed.key), since
    )


def _sku_of(card: RateCard, billed: BilledResource) -> Sku:
    if billed.kind is BilledKind.HOST:
        return card.host_sku(billed.region, billed.usage_class)
    return card.storage_sku(billed.kind, billed.type, billed.region)


def _admit(events: Iterable[UsageEvent], grouped: bool) -> Iterator[Admitted]:
    if not grouped:
        yield admit(events)
        return
    for resource_id, found in itertools.groupby(events, key=lambda event: event.resource_id):
        history = list(found)
        in_order = all(a.seq < b.seq for a, b in itertools.pairwise(history))
        if in_order and len({event.event_id for event in history}) == len(history):
            yield Admitted({resource_id: clamp(history)}, ())  # nothing comes twice
        else:
            yield admit(history)
