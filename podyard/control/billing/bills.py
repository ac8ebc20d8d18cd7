"""The inputs of a bill, read from the database: events, resources, terms. `pricing.bill.compute`
does the rest.

Invoices, previews, costs, budgets and what-if all come through `compute`, so that they cannot
disagree.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import failed_precondition
from podyard.control.billing import commitments
from podyard.db.access import accounts as account_rows
from podyard.db.billing import commitments as commitment_rows
from podyard.db.billing import prices, usage_events
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.usage import BilledResource, Suspense
from podyard.pricing import bill, cards
from podyard.pricing.bill import Bill, Resource, Terms, resources_of
from podyard.pricing.sku import RateCard


def compute(
    uow: UnitOfWork,
    projects: Sequence[str],
    resources: Mapping[str, Resource],
    terms: Terms,
    as_of: PlatformTime,
    last_seq: int | None = None,
    *,
    few: bool = False,
) -> Bill:
    """The bill of these resources, which these projects have. `last_seq`: as it was when this was
    the last usage event that anybody knew of. `few`: there are others in the projects, whose events
    are not read."""
    sources = {resource.source for resource in resources.values()}
    keys = sorted(sources) if few else None
    with_storage = any(
        resource.policy.sized or resource.policy.counted for resource in resources.values()
    )
    read = (
        usage_events.events(uow, project, keys, last_seq, with_storage=with_storage)
        for project in projects
    )
    events = (
        event for event in itertools.chain.from_iterable(read) if event.resource_id in sources
    )
    return bill.compute(events, resources, terms, as_of, grouped=True)


def billed_resources(
    uow: UnitOfWork, card: RateCard, projects: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, BilledResource]:
    """Return what the card charges of the projects, or of these `keys`: nodes, host VMs, disks,
    buckets and operations."""
    facts = (usage_events.facts(uow, project, keys).values() for project in projects)
    return bill.charged_resources(card, itertools.chain.from_iterable(facts))


def paid_resources(
    card: RateCard, account: Account, billed: Mapping[str, BilledResource]
) -> dict[str, Resource]:
    """Return what the account's projects have, as it pays for it: without the seconds that another
    account pays for."""
    found = resources_of(card, billed)
    if account.is_alone:
        return found
    return {
        key: dataclasses.replace(one, paid=account.spans_of(billed[key].project))
        for key, one in found.items()
    }


def terms_of(uow: UnitOfWork, account: Account) -> Terms:
    """The account's policy, commitments and credits."""
    bought = [
        commitments.to_billed(purchase)
        for purchase in commitment_rows.of_project(uow, account.project)
    ]
    credits = account_rows.credits_of(uow, account.project)
    return Terms(policy=account.policy, commitments=bought, credits=credits)


def project_terms(uow: UnitOfWork, account: Account) -> Terms:
    """For what one project uses: commitments and credits of an account over several projects are
    the account's, and the project's use has its list prices."""
    return terms_of(uow, account) if account.is_alone else Terms(policy=account.policy)


def check_prices(uow: UnitOfWork, card: RateCard) -> None:
    """Raises FAILED_PRECONDITION when the card says something else of a price that an issued
    invoice has used, with the version's name and both prices: prices of the past do not change."""
    for used in prices.list_kept(uow):
        if used.first_used is None:
            continue
        sku = card.skus.get(used.sku_id)
        version = (
            None
            if sku is None
            else next((v for v in sku.versions if v.version_id == used.version_id), None)
        )
        was = cards.price_text(used.nanos, used.unit)
        if sku is None or version is None:
            raise failed_precondition(
                f"the rate card no longer has price {used.version_id} ({was}), which issued "
                "invoices use: add it again"
            )
        if (version.nanos, sku.unit) != (used.nanos, used.unit):
            raise failed_precondition(
                f"price {used.version_id} is {cards.price_text(version.nanos, sku.unit)} in the "
                "rate card, but issued "
                f"invoices use {was}: past prices cannot change, so add a new version"
            )


def versions_used(found: Bill, card: RateCard) -> frozenset[str]:
    """The price versions of the card that a bill has used."""
    return frozenset(
        record.price.version_id for record in found.records if record.sku_id in card.skus
    )


def card_of_then(uow: UnitOfWork, card: RateCard, moment: PlatformTime) -> RateCard:
    """The card with the versions only that invoices had used by `moment`: what was held for want of
    a price then is still held when such an invoice is computed again."""
    then = {
        price.version_id
        for price in prices.list_kept(uow)
        if price.first_used and price.first_used <= moment
    }
    kept = {
        sku_id: dataclasses.replace(sku, versions=versions)
        for sku_id, sku in card.skus.items()
        if (versions := tuple(version for version in sku.versions if version.version_id in then))
    }
    return dataclasses.replace(card, skus=kept)


def suspense_in(found: Bill, seconds: range) -> list[Suspense]:
    """Return what has no price within these seconds."""
    return [part for one in found.suspense for part in one.within([seconds])]
