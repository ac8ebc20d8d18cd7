"""Month to date: what it has cost so far, where it goes, and what it costs now."""

from __future__ import annotations

import itertools
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.durations import duration_for_people
from podyard.base.money import money_text
from podyard.control.billing import dashboard
from podyard.control.billing.dashboard import MonthToDate, NodeMonth
from podyard.control.billing.snapshots import Snapshot
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.usage import BilledKind, BilledResource
from podyard.web.billing import ahead as billing_ahead
from podyard.web.billing import explorer as billing_explorer
from podyard.web.billing import invoices as billing_invoices
from podyard.web.billing import terms as billing_terms
from podyard.web.billing import work as billing_work
from podyard.web.billing.common import (
    budget_bar,
    cents,
    exactly,
    frame,
    height,
    hourly,
    name_of,
    pages,
    per_second,
    read,
    short,
    speed,
)
from podyard.web.billing.stream import stream
from podyard.web.kit import charts, commands, formats
from podyard.web.kit.places import resource_url
from podyard.web.kit.render import ConsoleRoute, page, project_url

router = APIRouter(
    prefix="/console/{project}/billing", route_class=ConsoleRoute, lifespan=billing_ahead.running
)
HELD_SHOWN_MAX = 20  # nodes without a price, each with its reason


@router.get("")
@stream("")
def show(request: Request, project: str) -> Response:
    def body(uow: UnitOfWork, found: Snapshot) -> tuple[Snapshot, MonthToDate, float]:
        return found, dashboard.month_to_date(uow, found), speed(uow.clock)

    found, month, clock = read(request, project, body)
    shown, numbers = pages(request, month.nodes)
    return page(
        request,
        "billing_month.html",
        **frame(project, ""),
        found=found,
        clock=clock,
        ready=sum(1 for node in month.nodes if node.rate and not node.facts.kind.is_storage),
        any_use=bool(found.facts),
        **_figures(found, month),
        nodes=[_node(node, project) for node in shown],
        pages=numbers,
        budgets=[budget_bar(budget) for budget in month.budgets],
        held=_held_nodes(found),
        chart=_by_day(month),
        outlook=_outlook(found, month),
        days=_days(month),
        commands=commands.bill_commands(project),
    )


def _figures(found: Snapshot, month: MonthToDate) -> dict[str, Any]:
    forecast = month.forecast
    change = None
    if month.before_then.parts:
        change = formats.percent(month.spent.parts / month.before_then.parts - 1)
    return {
        "month": month.month,
        "spent": cents(month.spent.parts),
        "exact": exactly(month.spent.parts),
        "estimated": cents(month.estimated.parts) if month.estimated.parts else "",
        "credits": cents(month.credits) if month.credits else "",
        "before": cents(month.before.parts),
        "before_then": cents(month.before_then.parts),
        "change": change,
        "expected": cents(forecast.expected.parts),
        "low": cents(forecast.low.parts),
        "high": cents(forecast.high.parts),
        "based_on": duration_for_people(forecast.based_on) if forecast.based_on else "",
        "rate": hourly(month.rate),
        "total": money_text(found.total_use),
        "exact_total": formats.exact_usd(found.total_use),
    }


def _node(node: NodeMonth, project: str) -> dict[str, Any]:
    return {
        "id": name_of(node.facts, project),
        "url": _page_of(node.facts) if node.rate else "",
        "kind": node.facts.kind,
        "facts": node.facts,
        "amount": money_text(node.amount),
        "exact": formats.exact_usd(node.amount),
        "base": exactly(node.amount.parts),
        "hourly": hourly(node.rate) if node.rate else "",
        "per_second": per_second(node.rate),
    }


def _page_of(facts: BilledResource) -> str:
    if facts.kind in (BilledKind.BUCKET, BilledKind.OPERATION):
        return project_url(facts.project, "settings", "storage")
    return resource_url(facts.name)


def _held_nodes(found: Snapshot) -> list[dict[str, Any]]:
    """Nodes whose seconds no price covers."""
    seconds: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for one in found.suspense:
        seconds[one.resource_id] = seconds.get(one.resource_id, 0) + one.seconds
        reasons.setdefault(one.resource_id, one.reason)
    names = {key: name_of(found.facts[key], found.project) for key in seconds}
    return [
        {"name": names[key], "seconds": seconds[key], "reason": reasons[key]}
        for key in list(seconds)[:HELD_SHOWN_MAX]
    ]


def _by_day(month: MonthToDate) -> Any:
    bars = [charts.Bar(day[5:], [("cost", height(amount.parts))]) for day, amount in month.days]
    return charts.stacked_bars("Cost by day", bars, unit="US dollars a day", shown=short)


def _outlook(found: Snapshot, month: MonthToDate) -> Any:
    """The month's cost so far as a line up to this moment, and from there where it may end."""
    sums = itertools.accumulate(amount.parts for _, amount in month.days)
    ends = [*range(1, len(month.days)), len(month.days) - 1 + month.today]
    points = [
        charts.ChartPoint(0, 0.0),
        *(charts.ChartPoint(x, height(parts)) for x, parts in zip(ends, sums, strict=True)),
    ]
    forecast = month.forecast
    low, expected, high = (
        height(one.parts) for one in (forecast.low, forecast.expected, forecast.high)
    )
    end = max(len(month.days), round(len(found.month_seconds()) / 86_400))
    outlook = charts.Outlook(end, low, expected, high)
    name = "Cost so far and what is expected"
    return charts.line_to_range(
        name, points, outlook, x_name="day", y_name="US dollars", shown=short
    )


def _days(month: MonthToDate) -> list[dict[str, str]]:
    return [{"day": day, "amount": money_text(amount)} for day, amount in month.days]


for part in (billing_explorer, billing_work, billing_terms, billing_invoices):
    router.include_router(part.router)
