"""The prices that issued invoices went by: what of the rate card they have used, and what it said of their time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from sqlalchemy import select

from podyard.base.clock import PlatformTime
from podyard.db.records import columns
from podyard.db.tables_billing import card_prices, price_versions_used
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.usage import PriceUnit, UsageRecord

_USED = select(price_versions_used).order_by(price_versions_used.c.version_id)
_CARD = select(card_prices).order_by(card_prices.c.sku_id, card_prices.c.effective_from)


@dataclasses.dataclass(frozen=True, slots=True)
class UsedPrice:
    """A price version that invoices have used; `first_used` is when the first of them was issued."""

    version_id: str
    sku_id: str
    unit: PriceUnit
    nanos: int
    first_used: PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class CardPrice:
    """A price version as the rate card had it when an invoice was issued for a time in which it holds."""

    version_id: str
    sku_id: str
    generation: str
    accelerator_type: str | None
    region: str
    usage: str
    unit: PriceUnit
    effective_from: PlatformTime
    nanos: int


def list_used(uow: UnitOfWork) -> list[UsedPrice]:
    return [UsedPrice(**{**row, "unit": PriceUnit(row["unit"])}) for row in uow.all(_USED)]


def keep_used(uow: UnitOfWork, records: Iterable[UsageRecord]) -> None:
    """Remembers the price versions of these records, which an invoice is issued of now."""
    known = {price.version_id for price in list_used(uow)}
    for record in records:
        if record.price.version_id not in known:
            price = UsedPrice(record.price.version_id, record.sku_id, record.unit, record.price.nanos, uow.now)
            uow.insert(price_versions_used, columns(price))


def of_card(uow: UnitOfWork) -> list[CardPrice]:
    """By SKU and time."""
    return [CardPrice(**{**row, "unit": PriceUnit(row["unit"])}) for row in uow.all(_CARD)]


def keep_card(uow: UnitOfWork, prices: Sequence[CardPrice]) -> None:
    if prices:
        uow.insert_all(card_prices, [columns(price) for price in prices])
