"""Podyard's own REST for what is owed: the billing account, invoices, commitments, credits and the
ledger."""

from __future__ import annotations

import json
from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Request
from pydantic import StrictBool, StrictInt, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import minor_text
from podyard.control.billing import accounts, bill_lines, commitments, invoices
from podyard.control.billing.invoice_document import EXACT_DECIMALS, quantity_of, to_json
from podyard.domain.account import Account
from podyard.domain.invoice import Credit, IssuedInvoice, Purchase
from podyard.domain.usage import UsageRecord
from podyard.http import several_units
from podyard.pricing.amounts import amount_of
from podyard.pricing.current_card import default_rate_card

router = APIRouter(prefix="/podyard/v1/projects/{project}", route_class=deps.Route)

LEDGER_PAGE_MAX = 1000
MONTH: deps.Query = {
    "name": "month",
    "description": (
        "An open month such as 2026-03; the one that platform time is in when it is left out."
    ),
    "schema": {"type": "string"},
}


LINE: deps.Query = {
    "name": "line",
    "description": "The id of a line of the invoice.",
    "schema": {"type": "string"},
}


class AccountMessage(deps.Asked):
    time_zone: StrictStr | None = None
    currency: StrictStr | None = None
    decimals: StrictInt | None = None
    tax: StrictStr | None = None
    grace_hours: StrictInt | None = None
    exchange_rates: dict[StrictStr, StrictStr] | None = None


class CloseMessage(deps.Asked):
    hold_suspense: StrictBool = False


class CommitmentMessage(deps.Asked):
    quantity: StrictInt = 1
    years: StrictInt
    upfront: StrictBool = False
    accelerator_type: StrictStr | None = None
    location: StrictStr | None = None
    sku: StrictStr | None = None
    validate_only: StrictBool = False


class CreditMessage(deps.Asked):
    amount: StrictStr
    from_month: StrictStr | None = None
    until_month: StrictStr
    reason: StrictStr = ""


class AccountAnswer(TypedDict):
    """`nextMonth` is the first that is not closed; `heldBecause`: why the loop could not close it.
    Rates are of the currency per US dollar. `projects`: those that the account pays for now."""

    project: str
    timeZone: str
    currency: str
    decimals: int
    tax: str
    graceHours: int
    nextMonth: str
    closesAt: Timestamp
    heldBecause: NotRequired[str]
    exchangeRates: dict[str, str]
    projects: list[str]


class InvoiceSummary(TypedDict):
    """An issued invoice: `sha256` is of its document, byte for byte as it was issued."""

    month: str
    number: str
    currency: str
    total: str
    asOf: Timestamp
    issueTime: Timestamp
    sha256: str


class InvoiceList(TypedDict):
    invoices: list[InvoiceSummary]


class InvoiceAnswer(TypedDict):
    """`state` is ISSUED, DRAFT (a preview of an open month) or EMPTY: then there is nothing to
    invoice. `held`: what of a draft has no price, and why."""

    month: str
    state: str
    invoice: NotRequired[dict[str, Any]]
    held: NotRequired[list[str]]
    sha256: NotRequired[str]
    issueTime: NotRequired[Timestamp]


class RatedAnswer(TypedDict):
    """Seconds of one resource at one price version; `units` are those that are charged."""

    resource: str
    startTime: Timestamp
    endTime: Timestamp
    seconds: int
    units: int
    priceVersion: str
    amount: str


class LineAnswer(deps.NextPage):
    """A line of an invoice. `unitSeconds` times `unitPrice`, divided by the seconds of the unit
    (3600 of an hour, 2,628,000 of a month), is `amount`, exactly."""

    month: str
    state: str
    line: str
    unit: str
    unitPrice: str
    quantity: str
    unitSeconds: int
    seconds: int
    amount: str
    records: list[RatedAnswer]


class CommitmentAnswer(TypedDict):
    """`quantity` units of the SKU from start to end. `upfront`: what was paid at once, in US
    dollars."""

    commitment: str
    sku: str
    unit: str
    quantity: int
    years: int
    pricePerHour: str
    priceVersion: str
    verified: bool
    source: str
    startTime: Timestamp
    endTime: Timestamp
    upfront: NotRequired[str]


class CommitmentList(TypedDict):
    commitments: list[CommitmentAnswer]


class CreditAnswer(TypedDict):
    credit: str
    amount: str
    fromMonth: str
    untilMonth: str
    reason: NotRequired[str]


class CreditList(TypedDict):
    credits: list[CreditAnswer]


class Entry(TypedDict):
    """Positive amounts are debits. `parts` is the exact amount, in parts of a nano (1 /
    2,628,000)."""

    account: str
    currency: str
    amount: str
    parts: str


class TransactionAnswer(TypedDict):
    seq: int
    source: str
    month: str
    bookTime: Timestamp
    text: str
    entries: list[Entry]


class TransactionList(deps.NextPage):
    transactions: list[TransactionAnswer]


@router.get("/billingAccount")
def get_account(request: Request, project: str) -> AccountAnswer:
    caller = deps.principal(request)
    return _account(deps.read(request, lambda uow: accounts.get(uow, caller, project)))


@router.patch("/billingAccount")
def patch_account(
    request: Request, project: str, body: Annotated[deps.Body, AccountMessage]
) -> AccountAnswer:
    """Sets what is given. Zone, currency and tax can be set until the first invoice is issued."""
    caller = deps.principal(request)
    caller.require("podyard.billing.edit", project, f"projects/{project}/billingAccount")
    given = deps.parse(AccountMessage, body).model_dump(exclude_none=True)
    changes = {{"exchange_rates": "rates"}.get(name, name): value for name, value in given.items()}
    return _account(deps.write(request, lambda uow: accounts.patch(uow, caller, project, changes)))


@router.get("/invoices")
def list_invoices(request: Request, project: str) -> InvoiceList:
    """The issued invoices, by month."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: invoices.list_invoices(uow, caller, project))
    return {"invoices": [_summary(invoice) for invoice in found]}


@router.get("/invoices:preview", openapi_extra=deps.asks(MONTH))
def preview(request: Request, project: str) -> InvoiceAnswer:
    """Return what the invoice of an open month is so far: computed as the invoice will be."""
    caller, month = deps.principal(request), request.query_params.get("month")
    found = deps.read(
        request, lambda uow: invoices.preview(uow, default_rate_card(), caller, project, month)
    )
    if found.document is None:
        return {"month": found.month, "state": "EMPTY"}
    return {
        "month": found.month,
        "state": "DRAFT",
        "invoice": to_json(found.document),
        "held": list(found.held),
    }


@router.get("/invoices/{month}:explain", openapi_extra=deps.asks(LINE, *deps.PAGING))
def explain(request: Request, project: str, month: str) -> LineAnswer:
    """Return what a line is made of: the seconds of each resource, and their prices."""
    caller, line = deps.principal(request), request.query_params.get("line", "")
    first, size, card = (
        deps.page_after_number(request),
        deps.page_size(request),
        default_rate_card(),
    )
    found = several_units.read_snapshot(
        deps.platform(request).database,
        lambda uow: bill_lines.explain(uow, card, caller, project, month, line),
    )
    shown = found.parts[first : first + size]
    is_more = first + size < len(found.parts)
    return {
        "month": month,
        "state": "ISSUED" if found.issued else "DRAFT",
        "line": found.line,
        "unit": str(found.unit),
        "unitPrice": minor_text(found.price.nanos, 9),
        "quantity": quantity_of(found.unit_seconds, found.unit),
        "unitSeconds": found.unit_seconds,
        "seconds": found.seconds,
        "amount": found.amount.text(EXACT_DECIMALS),
        "records": [
            _to_record(part, found.names.get(part.resource_id, part.resource_id)) for part in shown
        ],
        **deps.next_page(deps.page_token(str(first + size)) if is_more else None),
    }


@router.get("/invoices/{month}")
def get_invoice(request: Request, project: str, month: str) -> InvoiceAnswer:
    caller = deps.principal(request)
    return _invoice_answer(
        deps.read(request, lambda uow: invoices.get(uow, caller, project, month))
    )


@router.post("/invoices/{month}:close")
def close(
    request: Request, project: str, month: str, body: Annotated[deps.Body, CloseMessage]
) -> InvoiceAnswer:
    """Issues the invoice of a month that is over. One that is issued already is answered as it
    stands."""
    caller = deps.principal(request)
    caller.require("podyard.billing.edit", project, f"projects/{project}/invoices/{month}")
    hold = deps.parse(CloseMessage, body).hold_suspense
    database = deps.platform(request).database
    issued = several_units.close(
        database, default_rate_card(), caller, project, month, hold_suspense=hold
    )
    return {"month": month, "state": "EMPTY"} if issued is None else _invoice_answer(issued)


@router.get("/commitments")
def list_commitments(request: Request, project: str) -> CommitmentList:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: commitments.list_commitments(uow, caller, project))
    return {"commitments": [_commitment(purchase) for purchase in found]}


@router.post("/commitments")
def buy(
    request: Request, project: str, body: Annotated[deps.Body, CommitmentMessage]
) -> CommitmentAnswer:
    """Buys units of a SKU, or nodes of a type in a location's region, for 1 or 3 years from now on.
    `validateOnly`
    says what would be bought."""
    caller = deps.principal(request)
    caller.require("podyard.billing.edit", project, f"projects/{project}/commitments")
    message = deps.parse(CommitmentMessage, body)
    wanted = commitments.CommitmentRequest(
        message.quantity,
        message.years,
        message.upfront,
        message.accelerator_type,
        message.location,
        message.sku,
    )
    found = deps.write(
        request,
        lambda uow: commitments.buy(uow, default_rate_card(), caller, project, wanted),
        rehearse=message.validate_only,
    )
    return _commitment(found)


@router.get("/credits")
def list_credits(request: Request, project: str) -> CreditList:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: commitments.list_credits(uow, caller, project))
    return {"credits": [{**_credit(credit), "reason": credit.reason} for credit in found]}


@router.post("/credits")
def add_credit(
    request: Request, project: str, body: Annotated[deps.Body, CreditMessage]
) -> CreditAnswer:
    """An amount in US dollars for the invoices of these months, both included."""
    caller = deps.principal(request)
    caller.require("podyard.billing.edit", project, f"projects/{project}/credits")
    message = deps.parse(CreditMessage, body)
    what = (message.amount, message.from_month, message.until_month, message.reason)
    return _credit(
        deps.write(request, lambda uow: commitments.add_credit(uow, caller, project, *what))
    )


@router.get("/ledger", openapi_extra=deps.asks(*deps.PAGING))
def ledger(request: Request, project: str) -> TransactionList:
    """Return what was booked, in order. The entries of a transaction sum to zero in each
    currency."""
    caller, after = deps.principal(request), deps.page_after_number(request)
    limit = min(deps.page_size(request), LEDGER_PAGE_MAX)
    found = deps.read(
        request, lambda uow: invoices.transactions(uow, caller, project, after, limit)
    )
    token = deps.page_token(str(found[-1].seq)) if len(found) == limit else None
    rows: list[TransactionAnswer] = [
        {
            "seq": booked.seq,
            "source": booked.source_id,
            "month": booked.month,
            "bookTime": booked.booked.rfc3339(),
            "text": booked.text,
            "entries": [
                {
                    "account": entry.account,
                    "currency": entry.currency,
                    "amount": entry.amount.text(EXACT_DECIMALS),
                    "parts": str(entry.amount.parts),
                }
                for entry in booked.entries
            ],
        }
        for booked in found
    ]
    return {"transactions": rows, **deps.next_page(token)}


def _account(found: Account) -> AccountAnswer:
    answer: AccountAnswer = {
        "project": found.project,
        "timeZone": found.time_zone,
        "currency": found.currency,
        "decimals": found.decimals,
        "tax": found.tax,
        "graceHours": found.grace_hours,
        "nextMonth": found.next_month,
        "closesAt": found.closes_at(found.next_month).rfc3339(),
        "exchangeRates": dict(found.rates),
        "projects": [one.project for one in found.projects if one.is_paid_now],
    }
    if found.held_because:
        answer["heldBecause"] = found.held_because
    return answer


def _summary(invoice: IssuedInvoice) -> InvoiceSummary:
    return {
        "month": invoice.month,
        "number": invoice.number,
        "currency": invoice.currency,
        "total": minor_text(invoice.total, invoice.decimals),
        "asOf": invoice.as_of.rfc3339(),
        "issueTime": invoice.issued_at.rfc3339(),
        "sha256": invoice.sha256,
    }


def _invoice_answer(invoice: IssuedInvoice) -> InvoiceAnswer:
    return {
        "month": invoice.month,
        "state": "ISSUED",
        "invoice": json.loads(invoice.document),
        "sha256": invoice.sha256,
        "issueTime": invoice.issued_at.rfc3339(),
    }


def _to_record(part: UsageRecord, resource: str) -> RatedAnswer:
    return {
        "resource": resource,
        "startTime": PlatformTime(part.start_second * NANOS_PER_SECOND).rfc3339(),
        "endTime": PlatformTime((part.start_second + part.seconds) * NANOS_PER_SECOND).rfc3339(),
        "seconds": part.seconds,
        "units": part.quantity,
        "priceVersion": part.price.version_id,
        "amount": amount_of(part).text(EXACT_DECIMALS),
    }


def _commitment(found: Purchase) -> CommitmentAnswer:
    one = found.commitment
    answer: CommitmentAnswer = {
        "commitment": one.commitment_id,
        "sku": one.sku_id,
        "unit": str(one.unit),
        "quantity": one.quantity,
        "years": found.years,
        "pricePerHour": minor_text(one.price.nanos, 9),
        "priceVersion": one.price.version_id,
        "verified": one.price.verified,
        "source": one.price.source,
        "startTime": PlatformTime(one.start_second * NANOS_PER_SECOND).rfc3339(),
        "endTime": PlatformTime(one.end_of_charges * NANOS_PER_SECOND).rfc3339(),
    }
    if found.upfront is not None:
        answer["upfront"] = found.upfront.text(EXACT_DECIMALS)
    return answer


def _credit(found: Credit) -> CreditAnswer:
    return {
        "credit": found.credit_id,
        "amount": found.amount.text(EXACT_DECIMALS),
        "fromMonth": found.from_month,
        "untilMonth": found.until_month,
    }
