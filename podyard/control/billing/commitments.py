"""Commitments: units of a SKU that are paid for every second of their term, used or not; and
credits.

A commitment is bought at the price of its moment, which holds for its whole term. Monthly: every
second of the term is a charge on the invoice of its month. Upfront: the whole term is one
transaction of the ledger at the purchase. The invoice of the month of the purchase states it as a
separate line, and the commitment's other lines have the price 0.
"""

from __future__ import annotations

import dataclasses

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError, invalid, invalid_field
from podyard.base.ids import row_id
from podyard.base.money import NANOS_PER_UNIT, PARTS_PER_NANO, Amount
from podyard.control.billing import accounts
from podyard.db.access import accounts as account_rows
from podyard.db.billing import budgets
from podyard.db.billing import commitments as commitment_rows
from podyard.db.store import ledger
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import region_of
from podyard.domain.invoice import Commitment, Credit, Purchase
from podyard.domain.ledger import LedgerEntry
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.domain.usage import PriceUnit, PriceVersion
from podyard.pricing.sku import COMMITMENT_YEARS, RateCard, Sku

SECONDS_PER_YEAR = 365 * 86_400
QUANTITY_MAX = 1_000_000  # units: more chips than any region has
CREDIT_NANOS_MAX = 10**9 * NANOS_PER_UNIT  # a billion dollars
REASON_LENGTH_MAX = 500


@dataclasses.dataclass(frozen=True, slots=True)
class CommitmentRequest:
    """The commitment to buy: `quantity` nodes of a type in a zone, or units of a SKU. One of the
    two is named."""

    quantity: int
    years: int
    upfront: bool = False
    accelerator_type: str | None = None
    zone: str | None = None
    sku_id: str | None = None


def buy(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, request: CommitmentRequest
) -> Purchase:
    """Buys it, from the next whole second on. Raises INVALID_ARGUMENT for what nobody sells,
    NOT_FOUND for a SKU that
    is unknown or has no price for the term."""
    accounts.require_to_edit(uow, principal, project, "commitments")
    account = accounts.of(uow, project)
    bought = purchase(
        uow, card, project, request, row_id(uow.streams.stream("commitments"), "commitment")
    )
    one, paid = bought.commitment, bought.upfront
    commitment_rows.add(uow, bought)
    if paid is not None:
        entries = [
            LedgerEntry(f"receivable:{project}", accounts.USD, paid),
            LedgerEntry(f"revenue:commitment:{one.commitment_id}", accounts.USD, -paid),
        ]
        text = f"commitment {one.commitment_id}, paid upfront for {bought.years} years"
        month = account.month_of(PlatformTime(one.start_second * NANOS_PER_SECOND))
        ledger.book(uow, project, f"commitment/{one.commitment_id}", month, entries, text)
    # What is bought is spent: budgets look again.
    budgets.look_again(uow, project)
    return bought


def list_commitments(uow: UnitOfWork, principal: Principal, project: str) -> list[Purchase]:
    """By start, then id; those that have ended included."""
    accounts.require_to_view(uow, principal, project, "commitments")
    return commitment_rows.of_project(uow, project)


def to_billed(purchase: Purchase) -> Commitment:
    """The commitment as invoices charge it: what was paid upfront is charged once, and has the
    price 0 otherwise."""
    bought = purchase.commitment.price
    if purchase.upfront is None:
        return purchase.commitment
    price = dataclasses.replace(bought, nanos=0, version_id=f"{bought.version_id}#upfront")
    return dataclasses.replace(
        purchase.commitment, price=price, upfront=bought if purchase.stated else None
    )


def purchase(
    uow: UnitOfWork, card: RateCard, project: str, request: CommitmentRequest, commitment_id: str
) -> Purchase:
    """Return what is bought by a request now; raises as `buy`."""
    if request.years not in COMMITMENT_YEARS:
        terms = " or ".join(map(str, COMMITMENT_YEARS))
        raise invalid(f"years is {request.years}: use {terms}", "years")
    if not 1 <= request.quantity <= QUANTITY_MAX:
        raise invalid(
            f"quantity is {request.quantity}: it must be from 1 to {QUANTITY_MAX}", "quantity"
        )
    sku, units = _find_sku(card, request)
    version = _price_of_term(card, sku, request.years, uow.now)
    start = -(-uow.now.nanos // NANOS_PER_SECOND)
    price = PriceVersion(
        version.version_id,
        PlatformTime(start * NANOS_PER_SECOND),
        version.nanos,
        version.source,
        version.verified,
    )
    seconds = request.years * SECONDS_PER_YEAR
    quantity = units * request.quantity
    one = Commitment(commitment_id, sku.sku_id, sku.unit, quantity, price, start, start + seconds)
    upfront = Amount.of_hourly(version.nanos, seconds * quantity) if request.upfront else None
    return Purchase(one, project, request.years, upfront, uow.now)


def _find_sku(card: RateCard, request: CommitmentRequest) -> tuple[Sku, int]:
    """The on-demand SKU that a commitment covers, and how many of its units one of what was asked
    for is."""
    if (request.accelerator_type is None) == (request.sku_id is None):
        raise invalid_field(
            "specify either an accelerator type with a zone, or a SKU", "accelerator_type"
        )
    if request.accelerator_type is not None:
        if request.zone is None:
            raise invalid(
                "zone is required with acceleratorType: the commitment covers the "
                "region of the zone",
                "zone",
            )
        return card.sku_for(request.accelerator_type, region_of(request.zone), UsageClass.ON_DEMAND)
    sku = card.skus.get(str(request.sku_id))
    if sku is None:
        raise PodyardError(
            Code.NOT_FOUND, f"the rate card has no SKU {str(request.sku_id)[:128]!r}"
        )
    if sku.usage != UsageClass.ON_DEMAND or sku.unit in (PriceUnit.GIB_MONTH, PriceUnit.OPERATION):
        raise invalid(
            f"SKU {sku.sku_id} cannot be committed to: use an on-demand SKU of a TPU", "sku"
        )
    return sku, 1


def _price_of_term(card: RateCard, sku: Sku, years: int, now: PlatformTime) -> PriceVersion:
    """The commitment's price is a separate SKU from on demand."""
    sold = card.commitment_of(sku, years)
    version = None if sold is None else sold.version_at(now)
    if version is not None:
        return version
    raise PodyardError(
        Code.NOT_FOUND, f"{sku.sku_id} has no price for a commitment of {years} years"
    )


def add_credit(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    amount: str,
    from_month: str | None,
    until_month: str,
    reason: str,
) -> Credit:
    """A credit in US dollars for the invoices of these months, both included; from the first open
    one when it is left out. Raises INVALID_ARGUMENT, and for months that are closed
    FAILED_PRECONDITION."""
    accounts.require_to_edit(uow, principal, project, "credits")
    account = accounts.of(uow, project)
    exact = usd(amount, "amount", CREDIT_NANOS_MAX)
    first = (
        account.next_month if from_month is None else accounts.check_month(from_month, "from_month")
    )
    last = accounts.check_month(until_month, "until_month")
    accounts.require_open(account, first)
    if last < first:
        raise invalid_field(
            f"the last month of a credit must not be before its first month {first}, got {last}",
            "until_month",
        )
    if len(reason) > REASON_LENGTH_MAX:
        raise invalid(
            f"reason must have at most {REASON_LENGTH_MAX} characters, got {len(reason)}", "reason"
        )
    credit = Credit(row_id(uow.streams.stream("credits"), "credit"), exact, first, last, reason)
    account_rows.add_credit(uow, project, credit)
    return credit


def list_credits(uow: UnitOfWork, principal: Principal, project: str) -> list[Credit]:
    accounts.require_to_view(uow, principal, project, "credits")
    return account_rows.credits_of(uow, project)


def usd(text: str, field: str, most_nanos: int, *, zero: bool = False) -> Amount:
    """An amount of US dollars above zero (or zero, if `zero`), with at most nine decimals;
    INVALID_ARGUMENT names the field."""
    exact = accounts.decimal_of(text, field) if zero else accounts.positive_decimal(text, field)
    nanos = exact * NANOS_PER_UNIT
    if nanos.denominator != 1 or nanos > most_nanos:
        most = most_nanos // NANOS_PER_UNIT
        raise invalid(f"{field} is {text}: use at most nine decimals, and at most {most}", field)
    return Amount(nanos.numerator * PARTS_PER_NANO)
