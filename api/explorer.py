"""Podyard's own REST for the explorer: costs of any days, grouped by any dimension."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import minor_text
from podyard.control.billing import accounts, explorer, explorer_invoices
from podyard.control.billing.explorer import BY_INVOICE, BY_USE, DIMENSIONS, Question
from podyard.control.billing.invoice_document import EXACT_DECIMALS
from podyard.control.billing.snapshots import Snapshot, snapshot
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.http.several_units import read_snapshot
from podyard.pricing import explore
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.explore import CostBucket
from podyard.pricing.invoicing import PARTS_PER_UNIT

router = APIRouter(prefix="/podyard/v1/projects/{project}", route_class=deps.Route)

_DAY = {"type": "string", "format": "date"}
QUERIES: tuple[deps.Query, ...] = (
    {
        "name": "groupBy",
        "description": f"One of {', '.join(d for d in DIMENSIONS if d != 'label')}, or "
        "label:KEY: the "
        "labels and the "
        "creator that nodes had when they were used. By type when it is left out.",
        "schema": {"type": "string"},
    },
    {
        "name": "where",
        "description": (
            "Only what is of this value of a dimension, such as "
            "label:team=research; may "
            "be repeated."
        ),
        "schema": {"type": "array", "items": {"type": "string"}},
    },
    {"name": "from", "description": "The first day, in the account's time zone.", "schema": _DAY},
    {"name": "to", "description": "The last day, included.", "schema": _DAY},
    {
        "name": "bucket",
        "description": "How the bars divide the time.",
        "schema": {"type": "string", "enum": [str(bucket) for bucket in CostBucket]},
    },
    {
        "name": "by",
        "description": "use: US dollars before tax, by the time of use. invoice: the "
        "currency of the "
        "account with tax "
        "and corrections, by the month of the invoice.",
        "schema": {"type": "string", "enum": [BY_USE, BY_INVOICE]},
    },
)


class Sums(TypedDict):
    """Decimal numbers as strings: gross + credits = net."""

    gross: str
    credits: str
    net: str


class ExploredRow(Sums):
    group: str


class ExploredBar(Sums):
    """`name`: a day such as 2026-03-08, a month, or an hour."""

    name: str
    startTime: Timestamp
    endTime: Timestamp


class ExploredHead(TypedDict):
    """The question, and what it adds up to. `where`: the filters."""

    asOf: Timestamp
    timeZone: str
    currency: str
    firstDay: str
    lastDay: str
    groupBy: str
    where: list[str]
    bucket: str
    by: str


class ExploredAnswer(ExploredHead):
    """Rows and bars add up to the total."""

    rows: list[ExploredRow]
    bars: list[ExploredBar]
    total: Sums


@router.get("/costs:explore", openapi_extra=deps.asks(*QUERIES))
def explore_costs(request: Request, project: str) -> ExploredAnswer:
    """Costs of some days by what they were for: by default those of the present month by type."""
    caller, query = deps.principal(request), request.query_params
    fields = {"group" if name == "groupBy" else name: text for name, text in query.items()}

    def body(uow: UnitOfWork) -> ExploredAnswer:
        accounts.require_to_view(uow, caller, project, "costs")
        found = snapshot(uow, default_rate_card(), caller, project)
        asked = explorer.to_question(found.account, found.as_of, fields, query.getlist("where"))
        if asked.by == BY_USE:
            return _by_use(uow, found, asked)
        invoiced = explorer_invoices.ask_invoiced(uow, default_rate_card(), caller, found, asked)
        return _by_invoice(found, asked, invoiced)

    return read_snapshot(deps.platform(request).database, body, actor=caller.email)


def _by_use(uow: UnitOfWork, found: Snapshot, asked: Question) -> ExploredAnswer:
    answer = explorer.ask(uow, found, asked)
    exact = PARTS_PER_UNIT // 10**EXACT_DECIMALS
    rows = explore.in_units([(row.gross, row.net) for row in answer.rows], exact)
    net = answer.total.by_span("net")
    bars = explore.in_units(list(zip(answer.total.before, net, strict=True)), exact)
    return {
        **_head(found, asked, accounts.USD),
        "rows": [
            {"group": row.name, **_sums(sums)} for row, sums in zip(answer.rows, rows, strict=True)
        ],
        "bars": [
            {
                "name": explore.label(start, asked.bucket, found.account.time_zone),
                "startTime": _moment(start),
                "endTime": _moment(stop),
                **_sums(sums),
            }
            for start, stop, sums in zip(answer.spans, answer.spans[1:], bars, strict=False)
        ],
        "total": _total(rows),
    }


def _by_invoice(
    found: Snapshot, asked: Question, months: Sequence[explore.Invoiced]
) -> ExploredAnswer:
    booked, decimals = explore.book(months), found.account.decimals
    rows = [(sum(row.gross), sum(row.credits), sum(row.net)) for row in booked]
    bars = [
        (
            sum(row.gross[index] for row in booked),
            sum(row.credits[index] for row in booked),
            sum(row.net[index] for row in booked),
        )
        for index in range(len(months))
    ]
    return {
        **_head(found, asked, found.account.currency),
        "rows": [
            {"group": row.name, **_sums(sums, decimals)}
            for row, sums in zip(booked, rows, strict=True)
        ],
        "bars": [
            {
                "name": one.month,
                "startTime": _moment(found.month_seconds(one.month).start),
                "endTime": _moment(found.month_seconds(one.month).stop),
                **_sums(sums, decimals),
            }
            for one, sums in zip(months, bars, strict=True)
        ],
        "total": _total(rows, decimals),
    }


def _head(found: Snapshot, asked: Question, currency: str) -> ExploredHead:
    return {
        "asOf": found.as_of.rfc3339(),
        "timeZone": found.account.time_zone,
        "currency": currency,
        "firstDay": asked.first.isoformat(),
        "lastDay": asked.last.isoformat(),
        "groupBy": asked.group,
        "where": ["=".join(pair) for pair in asked.where],
        "bucket": str(asked.bucket),
        "by": asked.by,
    }


def _moment(second: int) -> str:
    return PlatformTime(second * NANOS_PER_SECOND).rfc3339()


def _total(rows: Sequence[tuple[int, int, int]], decimals: int = EXACT_DECIMALS) -> Sums:
    gross, credits, net = (sum(row[index] for row in rows) for index in range(3))
    return _sums((gross, credits, net), decimals)


def _sums(sums: tuple[int, int, int], decimals: int = EXACT_DECIMALS) -> Sums:
    gross, credits, net = (minor_text(minor, decimals) for minor in sums)
    return {"gross": gross, "credits": credits, "net": net}
