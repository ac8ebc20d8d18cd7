"""What a bill is computed from, read from the database: events, resources, terms. `pricing.bill.compute` does the rest.

Invoices, previews, costs, budgets and what-if all come through `compute`, so that they cannot disagree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, failed_precondition
from podyard.control import commitments
from podyard.db import accounts as account_rows
from podyard.db.tables_billing import price_versions_used, usage_events
from podyard.db.tables_jobs import attempts, jobs
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.fleet import region_of
from podyard.domain.invoice import JobSpan
from podyard.domain.node import UsageClass
from podyard.domain.usage import UsageEvent
from podyard.pricing import bill, cards
from podyard.pricing.bill import Bill, Resource, Terms
from podyard.pricing.meter import node_policy
from podyard.pricing.sku import RateCard

EVENTS_AT_ONCE = 10_000  # of a long history, in memory
KEYS_AT_ONCE = 500  # resources in one query: below every database's limit of parameters
NODE_KIND = "node"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node was, as its usage events say."""

    key: str
    name: str
    zone: str
    accelerator_type: str
    usage_class: UsageClass


def facts_of(uow: UnitOfWork, project: str, keys: Sequence[str] | None = None) -> dict[str, NodeFacts]:
    """Every node of the project that there has been, by key; or those of these `keys` that have events."""
    return {
        row["resource_key"]: NodeFacts(
            row["resource_key"],
            row["name"],
            row["zone"],
            row["accelerator_type"],
            UsageClass(row["usage_class"]),
        )
        for query in queries_of(_FACTS, keys)
        for row in uow.all(query, {"project": project})
    }


_FACTS = (
    select(
        usage_events.c.resource_key,
        func.max(usage_events.c.resource_name).label("name"),
        func.max(usage_events.c.zone).label("zone"),
        func.max(usage_events.c.accelerator_type).label("accelerator_type"),
        func.max(usage_events.c.usage_class).label("usage_class"),
    )
    .where(usage_events.c.project == bindparam("project"))
    .group_by(usage_events.c.resource_key)
    .order_by(usage_events.c.resource_key)
)


def resource_of(card: RateCard, facts: NodeFacts) -> Resource:
    """What the node is sold as. Without a price its seconds are held, with the reason."""
    policy = node_policy(facts.usage_class)
    try:
        sku, quantity = card.sku_for(facts.accelerator_type, region_of(facts.zone), facts.usage_class)
    except PodyardError as error:
        return Resource(facts.key, NODE_KIND, None, 1, policy, held_because=error.message)
    return Resource(facts.key, NODE_KIND, sku, quantity, policy)


def compute(
    uow: UnitOfWork,
    project: str,
    resources: Mapping[str, Resource],
    terms: Terms,
    as_of: PlatformTime,
    last_seq: int | None = None,
    *,
    few: bool = False,
) -> Bill:
    """The bill of these resources. `last_seq`: as it was when this was the last usage event that anybody knew of.
    `few`: there are others in the project, whose events are not read."""
    query = EVENTS if last_seq is None else EVENTS.where(usage_events.c.seq <= last_seq)
    queries = queries_of(query, sorted(resources) if few else None)
    events = (event for query in queries for event in events_of(uow, query, project) if event.resource_id in resources)
    return bill.compute(events, resources, terms, as_of, grouped=True)


def queries_of(query: Select[Any], keys: Sequence[str] | None) -> Iterator[Select[Any]]:
    """The query for these resources only, so many at once; None: for all of the project."""
    if keys is None:
        yield query
        return
    for place in range(0, len(keys), KEYS_AT_ONCE):
        yield query.where(usage_events.c.resource_key.in_(keys[place : place + KEYS_AT_ONCE]))


def events_of(uow: UnitOfWork, query: Select[Any], project: str) -> Iterator[UsageEvent]:
    """Resource by resource, as `pricing.bill.compute` takes them. `query`: of `EVENTS`."""
    for row in uow.execute(query, {"project": project}):
        yield UsageEvent(row.event_id, row.resource_key, row.resource_seq, row.state, row.at)


EVENTS = (
    select(
        usage_events.c.event_id,
        usage_events.c.resource_key,
        usage_events.c.resource_seq,
        usage_events.c.state,
        usage_events.c.at,
    )
    .where(usage_events.c.project == bindparam("project"))
    .order_by(usage_events.c.resource_key, usage_events.c.resource_seq)
    .execution_options(yield_per=EVENTS_AT_ONCE)
)


def terms_of(uow: UnitOfWork, account: Account, **more: Any) -> Terms:
    """The account's policy, commitments and credits; `more`: other fields of `Terms`."""
    bought = [commitments.billed(purchase) for purchase in commitments.of(uow, account.project)]
    credits = account_rows.credits_of(uow, account.project)
    return Terms(policy=account.policy, commitments=bought, credits=credits, **more)


def spans_of(uow: UnitOfWork, project: str, *, by_attempt: bool = False) -> list[JobSpan]:
    """When which job had which node: one span for each attempt. `by_attempt`: they are named by the attempts' ids
    instead of the jobs' keys."""
    return [
        JobSpan(row["attempt_id"] if by_attempt else row["job_key"], row["node_key"], row["started"], row["ended"])
        for row in uow.all(_SPANS, {"project": project})
    ]


def job_spans_on(uow: UnitOfWork, node_keys: Sequence[str]) -> list[JobSpan]:
    """As `spans_of`, of these nodes only."""
    return [
        JobSpan(row["job_key"], row["node_key"], row["started"], row["ended"])
        for row in uow.all(_SPANS_ON, {"nodes": list(node_keys)})
    ]


_SPANS = (
    select(attempts.c.attempt_id, attempts.c.started, attempts.c.ended, jobs.c.job_key, jobs.c.node_key)
    .join(jobs, jobs.c.job_key == attempts.c.job_key)
    .where(jobs.c.project == bindparam("project"))
    .order_by(attempts.c.started, attempts.c.attempt_id)
)
_SPANS_ON = (
    select(attempts.c.started, attempts.c.ended, jobs.c.job_key, jobs.c.node_key)
    .join(jobs, jobs.c.job_key == attempts.c.job_key)
    .where(jobs.c.node_key.in_(bindparam("nodes", expanding=True)))
    .order_by(attempts.c.started, attempts.c.attempt_id)
)


def check_prices(uow: UnitOfWork, card: RateCard) -> None:
    """Raises FAILED_PRECONDITION when the card says something else of a price that an issued invoice has used, with the
    version's name and both prices: prices of the past do not change."""
    for row in uow.all(_USED):
        sku = card.skus.get(row["sku_id"])
        version = None if sku is None else next((v for v in sku.versions if v.version_id == row["version_id"]), None)
        was = cards.price_text(row["nanos"], row["unit"])
        if sku is None or version is None:
            raise failed_precondition(
                f"the rate card has lost {row['version_id']}, {was}, which issued invoices have used"
            )
        if (version.nanos, str(sku.unit)) != (row["nanos"], row["unit"]):
            raise failed_precondition(
                f"the rate card says {cards.price_text(version.nanos, sku.unit)} for {row['version_id']}, and issued "
                f"invoices {was}: prices of the past do not change, add a version"
            )


def prices_of(found: Bill, card: RateCard) -> list[Mapping[str, Any]]:
    """The card's price versions that a bill has used, as `keep_prices` remembers them."""
    used = {record.price.version_id: record for record in found.records if record.sku_id in card.skus}
    return [
        {"version_id": version_id, "sku_id": one.sku_id, "unit": str(one.unit), "nanos": one.price.nanos}
        for version_id, one in sorted(used.items())
    ]


def keep_prices(uow: UnitOfWork, used: Sequence[Mapping[str, Any]]) -> None:
    """Remembers price versions that an issued invoice has used (`prices_of`)."""
    known = {row["version_id"] for row in uow.all(_USED)}
    for row in used:
        if row["version_id"] not in known:
            uow.insert(price_versions_used, {**row, "first_used": uow.now})


def card_of_then(uow: UnitOfWork, card: RateCard, moment: PlatformTime) -> RateCard:
    """The card with the versions only that invoices had used by `moment`: what was held for want of a price then is
    still held when such an invoice is computed again."""
    then = {row["version_id"] for row in uow.all(_USED) if row["first_used"] <= moment}
    kept = {
        sku_id: dataclasses.replace(sku, versions=versions)
        for sku_id, sku in card.skus.items()
        if (versions := tuple(version for version in sku.versions if version.version_id in then))
    }
    return dataclasses.replace(card, skus=kept)


_USED = select(price_versions_used).order_by(price_versions_used.c.version_id)


def held_in(found: Bill, seconds: range) -> Sequence[tuple[str, int, int, str]]:
    """What has no price within these seconds: (resource, first second, seconds, reason)."""
    held = []
    for item in found.suspense:
        start = max(item.start_second, seconds.start)
        stop = min(item.start_second + item.seconds, seconds.stop)
        if start < stop:
            held.append((item.resource_id, start, stop - start, item.reason))
    return held
