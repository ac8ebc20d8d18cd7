"""The prices that issued invoices went by: what the rate card said of their time, and which of it
they used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from sqlalchemy import bindparam, delete, select, update

from podyard.base.clock import PlatformTime
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import card_prices
from podyard.db.tables.billing import charge_starts as starts_table
from podyard.domain.usage import BilledKind, PriceUnit

_KEPT = select(card_prices).order_by(
    card_prices.c.sku_id, card_prices.c.effective_from, card_prices.c.version_id
)
_USE = (
    update(card_prices)
    .where(card_prices.c.version_id == bindparam("version"), card_prices.c.first_used.is_(None))
    .values(first_used=bindparam("now", type_=card_prices.c.first_used.type))
)


@dataclasses.dataclass(frozen=True, slots=True)
class CardPrice:
    """A price version as the rate card had it when a month was closed for which it holds.

    `first_used`: when the first month that used it was closed; None: no month has. `effective_from`
    None: it was used before more than prices were kept, and neither its time nor what it is for is
    known.
    """

    version_id: str
    sku_id: str
    generation: str | None
    accelerator_type: str | None
    region: str | None
    usage: str | None
    unit: PriceUnit
    effective_from: PlatformTime | None
    nanos: int
    first_used: PlatformTime | None = None


def list_kept(uow: UnitOfWork) -> list[CardPrice]:
    """By SKU and time."""
    return [CardPrice(**{**row, "unit": PriceUnit(row["unit"])}) for row in uow.all(_KEPT)]


def keep(uow: UnitOfWork, prices: Iterable[CardPrice], used: frozenset[str]) -> None:
    """Keeps the prices that are not known yet, and remembers which versions the month that is
    closed now has `used`."""
    known = {price.version_id: price for price in list_kept(uow)}
    new = [price for price in prices if price.version_id not in known]
    if new:
        first = {True: uow.now, False: None}
        uow.insert_all(
            card_prices,
            [
                columns(dataclasses.replace(price, first_used=first[price.version_id in used]))
                for price in new
            ],
        )
    for version in sorted(used & known.keys()):
        if known[version].first_used is None:
            uow.execute(_USE, {"version": version, "now": uow.now})


def charge_starts(uow: UnitOfWork) -> dict[BilledKind, PlatformTime]:
    """Since when the rate card of the last invoice charges disks, buckets and operations, where it
    does."""
    return {BilledKind(row["kind"]): row["start"] for row in uow.all(select(starts_table))}


def keep_starts(uow: UnitOfWork, starts: Mapping[BilledKind, PlatformTime]) -> None:
    """Keeps these in place of all that were kept."""
    if starts == charge_starts(uow):
        return
    uow.execute(delete(starts_table))
    uow.insert_all(
        starts_table, [{"kind": str(kind), "start": start} for kind, start in starts.items()]
    )
