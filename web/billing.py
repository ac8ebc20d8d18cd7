"""The bill up to now: what the API's usage says, by node and by day."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.money import Amount
from podyard.control import billing
from podyard.http import context
from podyard.pricing.sku import default_rate_card
from podyard.web import charts, commands, daily, formats
from podyard.web.render import ConsoleRoute, page

DAYS_SHOWN_MAX = 31
NODES_SHOWN_MAX = 500  # the newest; the total is of all

router = APIRouter(prefix="/console/{project}/billing", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    caller = context.principal(request)
    usage = context.read(request, lambda uow: billing.usage(uow, default_rate_card(), caller, project))
    days = daily.cost_by_day(usage.nodes)
    shown = _all_days(list(days))
    bars = [
        charts.Bar(daily.day_text(day), [(name, _float(amount)) for name, amount in days.get(day, {}).items()])
        for day in shown
    ]
    rows = [
        {"day": daily.day_text(day), "amount": Amount(sum(a.parts for a in days.get(day, {}).values()))}
        for day in shown
        if day in days
    ]
    newest = list(reversed(usage.nodes))
    return page(
        request,
        "billing.html",
        section="billing",
        project=project,
        usage=usage,
        rows=newest[:NODES_SHOWN_MAX],
        left_out=max(0, len(newest) - NODES_SHOWN_MAX),
        held=[node for node in usage.nodes if node.held_because],
        estimated=any(node.estimated for node in usage.nodes),
        days=rows,
        series=charts.series_names(bars),
        chart=charts.stacked_bars("Cost by day", bars, unit="US dollars a day", shown=_dollars),
        commands=commands.bill_commands(project),
    )


def _all_days(days: list[int]) -> list[int]:
    """The days from the first to the last, those without cost included; the newest `DAYS_SHOWN_MAX`."""
    return list(range(days[0], days[-1] + 1))[-DAYS_SHOWN_MAX:] if days else []


def _float(amount: Amount) -> float:
    """For the height of a bar only: sums are made of amounts."""
    return float(amount.fraction())


def _dollars(value: float) -> str:
    return "$" + formats.number(value)
