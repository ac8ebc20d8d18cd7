"""The rate card that issued invoices went by: what it said of their time is kept, and no later card
may say otherwise.

Usage of issued months is rated again whenever there may be a correction. So a card by which it
would be priced otherwise is refused before it is used: when a server starts, and by each preview
and closing.
"""

from __future__ import annotations

import itertools

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.control.billing import bills
from podyard.db.billing import invoices, prices
from podyard.db.billing.prices import CardPrice
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.usage import BilledKind, PriceVersion
from podyard.pricing import cards
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import STORED, RateCard, make_sku


def check_at_start(uow: UnitOfWork) -> None:
    """Raises as `check` for the rate card of this process. One that cannot be read says so wherever
    it is asked."""
    if not invoices.any_issued(uow):
        return  # nothing to contradict: a card need not be read for that
    try:
        card = default_rate_card()
    except PodyardError:
        return
    check(uow, card)


def check(uow: UnitOfWork, card: RateCard) -> None:
    """Raises FAILED_PRECONDITION when the card prices the time of issued invoices otherwise than
    theirs did: it names the SKU and time of the price, and both prices."""
    bills.check_prices(uow, card)
    until = invoices.last_moment(uow)
    if until is not None:
        cards.check_change(_kept_card(uow), card, until)


def keep(
    uow: UnitOfWork, card: RateCard, until: PlatformTime, used: frozenset[str], *, invoiced: bool
) -> None:
    """Keeps what the card says of the time until `until`, for which a month is closed now, and
    which versions it has used; without an invoice, these versions only."""
    told = (
        CardPrice(
            version_id=version.version_id,
            sku_id=sku.sku_id,
            generation=sku.generation,
            accelerator_type=sku.accelerator_type,
            region=sku.region,
            usage=sku.usage,
            unit=sku.unit,
            effective_from=version.effective_from,
            nanos=version.nanos,
        )
        for _, sku in sorted(card.skus.items())
        if card.charges(sku)
        for version in sku.versions
        if (invoiced and version.effective_from <= until) or version.version_id in used
    )
    prices.keep(uow, told, used)
    if invoiced:
        starts = ((kind, card.charge_start(kind)) for kind in STORED.values())
        prices.keep_starts(
            uow, {kind: start for kind, start in starts if start is not None and start <= until}
        )


def _kept_card(uow: UnitOfWork) -> RateCard:
    """A card of what was kept with its time; it knows no sources. Prices of disks, objects and
    operations are kept from when these are charged."""
    skus = {}
    for sku_id, group in itertools.groupby(prices.list_kept(uow), lambda price: price.sku_id):
        kept = [
            (price, price.effective_from) for price in group if price.effective_from is not None
        ]
        if not kept:
            continue
        first = kept[0][0]
        versions = [PriceVersion(price.version_id, since, price.nanos, "") for price, since in kept]
        skus[sku_id] = make_sku(
            sku_id,
            first.unit,
            versions,
            generation=first.generation or "",
            accelerator_type=first.accelerator_type,
            region=first.region or "",
            usage=first.usage or "",
        )
    starts = prices.charge_starts(uow)
    return RateCard(
        cards.CURRENCY,
        skus,
        disks_from=starts.get(BilledKind.DISK),
        objects_from=starts.get(BilledKind.BUCKET),
        operations_from=starts.get(BilledKind.OPERATION),
    )
