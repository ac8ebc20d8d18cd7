"""The rate card that issued invoices went by: what it said of their time is kept, and no later card may say otherwise.

Usage of issued months is rated again whenever there may be a correction. So a card by which it would be priced
otherwise is refused before it is used: when a server starts, and by each preview and closing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.control import bills
from podyard.db.tables_billing import card_prices, invoices
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.usage import PriceUnit, PriceVersion
from podyard.pricing import cards
from podyard.pricing.sku import RateCard, default_rate_card, make_sku


def check_at_start(uow: UnitOfWork) -> None:
    """Raises as `check` for the rate card of this process. One that cannot be read says so wherever it is asked."""
    if uow.first(_ISSUED) is None:
        return  # nothing to contradict: a card need not be read for that
    try:
        card = default_rate_card()
    except PodyardError:
        return
    check(uow, card)


def check(uow: UnitOfWork, card: RateCard) -> None:
    """Raises FAILED_PRECONDITION when the card prices the time of issued invoices otherwise than theirs did: it names
    the SKU and time of the price, and both prices."""
    bills.check_prices(uow, card)
    until: PlatformTime | None = uow.execute(_UNTIL).scalar()
    if until is not None:
        cards.check_change(_kept(uow), card, until)


def keep(uow: UnitOfWork, card: RateCard, until: PlatformTime) -> None:
    """Keeps what the card says of the time until `until`, for which an invoice is issued now."""
    known = frozenset(row["version_id"] for row in uow.all(select(card_prices.c.version_id)))
    rows = [
        {
            "version_id": version.version_id,
            "sku_id": sku.sku_id,
            "generation": sku.generation,
            "accelerator_type": sku.accelerator_type,
            "region": sku.region,
            "usage": sku.usage,
            "unit": str(sku.unit),
            "effective_from": version.effective_from,
            "nanos": version.nanos,
        }
        for _, sku in sorted(card.skus.items())
        for version in sku.versions
        if version.effective_from <= until and version.version_id not in known
    ]
    if rows:
        uow.insert_all(card_prices, rows)


def _kept(uow: UnitOfWork) -> RateCard:
    """A card of what was kept; it knows no sources."""
    of_sku: dict[str, list[Mapping[str, Any]]] = {}
    for row in uow.all(_ALL):
        of_sku.setdefault(row["sku_id"], []).append(row)
    skus = {}
    for sku_id, rows in of_sku.items():
        first = rows[0]
        versions = [PriceVersion(row["version_id"], row["effective_from"], row["nanos"], "") for row in rows]
        names = {name: first[name] for name in ("generation", "accelerator_type", "region", "usage")}
        skus[sku_id] = make_sku(sku_id, PriceUnit(first["unit"]), versions, **names)
    return RateCard(cards.CURRENCY, skus)


_ISSUED = select(invoices.c.number).limit(1)
_UNTIL = select(func.max(invoices.c.as_of))
_ALL = select(card_prices).order_by(card_prices.c.sku_id, card_prices.c.effective_from)
