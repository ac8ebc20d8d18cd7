"""Bills of cases from text: one JSON object a line, in the format of the worked cases, through the
code that bills.

A case has its policy, rate card, resources and events in order of arrival, and may have credits,
commitments, jobs, a budget, and what was issued before. What is wrong with a case is an error of
that case only, and names the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, failed_precondition, invalid
from podyard.base.money import Amount, minor_text, round_half_up
from podyard.domain.invoice import Invoice
from podyard.pricing.bill import Bill, compute
from podyard.pricing.case import Case, read_case
from podyard.pricing.invoicing import PARTS_PER_UNIT

# a case of EVENTS_MAX events with long names; more is another kind of file
LINE_BYTES_MAX = 32 << 20
DECIMALS = 12  # of exact amounts that are shown as decimals


def replay_line(line: bytes) -> tuple[dict[str, Any], bool]:
    """The answer to one line, and whether it is a result (else an error). Never raises for what a
    line says."""
    case_id: str | None = None
    try:
        data = decode(line)
        if isinstance(data, dict) and isinstance(data.get("id"), str):
            case_id = data["id"]
        return {"id": case_id, "result": result_of(read_case(data))}, True
    except PodyardError as error:
        body = {"code": error.code.http_status, "message": error.message, "status": error.code.name}
        return {"id": case_id, "error": body}, False


def decode(line: bytes) -> Any:
    """The JSON of a line; raises INVALID_ARGUMENT for what is not JSON in UTF-8, or names a key
    twice."""
    if len(line) > LINE_BYTES_MAX:
        raise invalid(f"the line is longer than {LINE_BYTES_MAX} bytes")
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except ValueError as error:
        raise invalid(f"not JSON: {error}") from error
    except RecursionError as error:
        raise invalid("not a case: it is nested too deep") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise invalid(
            f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice"
        )
    return found


def _no_number(text: str) -> Any:
    raise invalid(f"not JSON: {text} is not a number")


def bill_of(case: Case) -> Bill:
    """The case's bill; raises FAILED_PRECONDITION for seconds without a price, or a month without
    exchange rate."""
    found = compute(case.events, case.resources, case.terms, case.as_of)
    for held in found.suspense[:1]:
        raise failed_precondition(
            f"no price for {held.seconds} s of {held.resource_id} from "
            f"{_moment(held.start_second)}: {held.reason}"
        )
    missing = [
        i.month for i in found.invoices if case.rates is not None and i.month not in case.rates
    ]
    if missing:
        raise failed_precondition(f"policy.fx: no rate for {missing[0]}")
    return found


def result_of(case: Case) -> dict[str, Any]:
    """The case's bill in the text forms of the worked cases; a key that is optional is there when
    its cause is."""
    found = bill_of(case)
    result: dict[str, Any] = {
        "seconds": dict(found.seconds),
        "sku_cost_usd": {
            sku_id: {"exact": exact_text(amount), "decimal": decimal_text(amount)}
            for sku_id, amount in found.cost_by_sku.items()
        },
        "invoices": [_invoice(invoice, case.price_texts) for invoice in found.invoices],
    }
    if found.quarantined:
        result["quarantined_event_ids"] = list(found.quarantined)
    if case.terms.jobs is not None:
        result["attribution"] = {
            resource_id: {
                job_id: {
                    "seconds": share.seconds,
                    "exact_usd": exact_text(share.amount),
                    "decimal": decimal_text(share.amount),
                }
                for job_id, share in shares.items()
            }
            for resource_id, shares in found.attribution.items()
        }
    if case.terms.budgets:
        (stop,) = found.budget_stops
        result["budget_stop_at"] = None if stop is None else stop.rfc3339()
    if case.has_issued:
        result["adjustments"] = [
            {
                "corrects_month": a.corrects_month,
                "booked_in_month": a.booked_in_month,
                "amount": minor_text(a.minor, found.policy.decimals),
            }
            for a in found.adjustments
        ]
    return result


def _invoice(invoice: Invoice, price_texts: Mapping[str, str]) -> dict[str, Any]:
    def format_minor(minor: int) -> str:
        return minor_text(minor, invoice.decimals)

    return {
        "month": invoice.month,
        "currency": invoice.currency,
        "lines": [
            {
                "sku": line.sku_id,
                "unit_price_usd": price_texts[line.price.version_id],
                "seconds": line.seconds,
                "exact_usd": exact_text(line.amount),
                "amount": format_minor(line.shown),
            }
            for line in invoice.lines
        ],
        "credits": [
            {
                "credit": line.credit_id,
                "exact_usd": exact_text(line.amount),
                "amount": format_minor(line.shown),
            }
            for line in invoice.credits
        ],
        "rounding_error": format_minor(invoice.rounding_error),
        "subtotal": format_minor(invoice.subtotal),
        "tax": format_minor(invoice.tax),
        "total": format_minor(invoice.total),
    }


def exact_text(amount: Amount) -> str:
    """A reduced fraction: `9/2`, `3`."""
    return str(amount.fraction())


def decimal_text(amount: Amount) -> str:
    """Twelve decimals, rounded half up, without the zeros at the end."""
    text = minor_text(round_half_up(amount.parts * 10**DECIMALS, PARTS_PER_UNIT), DECIMALS)
    return text.rstrip("0").rstrip(".")


def _moment(second: int) -> str:
    return PlatformTime(second * 10**9).rfc3339()
