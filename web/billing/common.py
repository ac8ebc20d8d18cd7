"""Common parts of the billing pages: the bill they show, how amounts read, and the tabs between
them."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import Request
from markupsafe import Markup
from starlette.responses import Response

from podyard.base.clock import NANOS_PER_SECOND, ClockMode, PlatformClock, PlatformTime
from podyard.base.money import NANOS_PER_UNIT, PARTS_PER_NANO, minor_text, money_text, price_text
from podyard.control.billing import accounts
from podyard.control.billing.dashboard import FORECAST_EXACT_CHARGES, FORECAST_SECONDS
from podyard.control.billing.snapshots import Snapshot, snapshot
from podyard.control.billing.spending import BudgetState
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.usage import BilledResource
from podyard.http import context
from podyard.http.several_units import read_snapshot
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.explore import Exact, round_half
from podyard.web.kit import formats
from podyard.web.kit.render import project_url

ROWS_SHOWN = 50  # of a table on one page: with its frame some 40 kB at most
PARTS_PER_DOLLAR = NANOS_PER_UNIT * PARTS_PER_NANO
CENT = PARTS_PER_DOLLAR // 100
NEAR_SHARE = 0.8  # of a budget: from here on its bar is of another colour
HOURLY_DECIMALS = 4  # of what is in use per hour: a sum of prices
RATE_ONE = 1_000_000  # of a virtual clock, in millionths

T = TypeVar("T")
MARK = Markup("<!-- figures -->")  # where a page's frame ends: no text of users has such brackets
TABS = (
    ("", "Month", "Billing"),
    ("explorer", "Explorer", "Explorer"),
    ("runs", "Runs", "Runs"),
    ("idle", "Idle", "Idle and efficiency"),
    ("spot", "Spot", "Spot and preemptible"),
    ("commitments", "Commitments", "Commitments"),
    ("invoices", "Invoices", "Invoices"),
    ("prices", "Rate cards", "Rate cards"),
    ("budgets", "Budgets", "Budgets"),
    ("what-if", "What if", "What if"),
)
_SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
# how a text begins that a spreadsheet runs; a number is none
_FORMULA = re.compile(r"[=+@\t\r]|-(?![0-9.]*\Z)")
MONTHS_SHOWN_MAX = 36  # to choose from; any other can be named in the address


@dataclasses.dataclass(frozen=True, slots=True)
class Pages:
    """The part of the rows that a page shows, and the addresses of its neighbours; None: there is
    none."""

    first: int
    last: int
    total: int
    before: str | None
    after: str | None


def read(request: Request, project: str, body: Callable[[UnitOfWork, Snapshot], T]) -> T:
    caller = context.principal(request)
    return read_again(
        request, lambda uow: body(uow, snapshot(uow, default_rate_card(), caller, project))
    )


def read_again(request: Request, body: Callable[[UnitOfWork], T]) -> T:
    """As `context.read`, for what takes a snapshot."""
    return read_snapshot(
        context.platform(request).database, body, actor=context.principal(request).email
    )


def cents(parts: Exact) -> str:
    """An exact amount, for one figure that is part of no sum."""
    return money_text(Fraction(parts) / PARTS_PER_DOLLAR)


def exactly(parts: Exact, decimals: int = 12) -> str:
    """`12.345678901234`: as the worked cases print exact amounts."""
    return minor_text(round_half(parts * 10**decimals, PARTS_PER_DOLLAR), decimals)


def height(parts: Exact) -> float:
    """For the height of a bar only: sums are made of exact amounts."""
    return float(parts) / PARTS_PER_DOLLAR


def short(value: float) -> str:
    """`$1.5k`: for the axis of a chart, where figures are round and there is little room."""
    size, unit = next(((size, unit) for size, unit in _SIZES if abs(value) >= size), (1.0, ""))
    return f"{'-' if value < 0 else ''}${formats.number(abs(value) / size)}{unit}"


def name_of(node: BilledResource, project: str) -> str:
    """The node's id, or the name of a disk or bucket; of another project, with that."""
    return node.short_name if node.project == project else f"{node.project}/{node.short_name}"


def hourly(parts_per_second: int) -> str:
    """`$4.50`: what that is per hour."""
    step = NANOS_PER_UNIT // 10**HOURLY_DECIMALS
    return price_text(round_half(parts_per_second * 3600, PARTS_PER_NANO * step) * step)


def per_second(parts_per_second: int) -> str:
    """For the script, in dollars."""
    return exactly(parts_per_second, 15)


def speed(clock: PlatformClock) -> float:
    """Platform seconds per real second, as far as a page can know."""
    if clock.mode is ClockMode.VIRTUAL:
        return clock.rate_millionths / RATE_ONE
    return 1.0 if clock.running or clock.mode is ClockMode.SYSTEM else 0.0


def make_once(
    found: Snapshot, key: tuple[object, ...], make: Callable[[], T]
) -> tuple[PlatformTime, T]:
    """Return what looks at every charge, and of which moment it is: of a large project it is made
    once a minute."""
    moment: object = found.moment
    if len(found.charges) > FORECAST_EXACT_CHARGES:
        moment = found.as_of.nanos // NANOS_PER_SECOND // FORECAST_SECONDS
    return found.keep((*key, moment), lambda: (found.as_of, make()))


def month_of(request: Request, found: Snapshot) -> str:
    """The month that `?month=` names, or the present one; INVALID_ARGUMENT for what is none."""
    return accounts.check_month(request.query_params.get("month") or found.month)


def months_of(found: Snapshot) -> list[str]:
    """The months of the account up to now, the newest first."""
    until = months.following(found.month)
    return list(reversed(list(found.account.closed_months(until))))[:MONTHS_SHOWN_MAX] or [
        found.month
    ]


def pages(
    request: Request, rows: Sequence[T], most: int = ROWS_SHOWN, query: str = "page"
) -> tuple[Sequence[T], Pages]:
    """The rows of the page that `?page=` names (or another `query`); a page that is not there is
    the last one."""
    text = request.query_params.get(query, "1")
    last = max(1, -(-len(rows) // most))
    number = min(max(int(text), 1), last) if text.isdecimal() and len(text) < 9 else 1
    start = (number - 1) * most
    shown = rows[start : start + most]

    def at(page: int) -> str | None:
        return with_query(request, **{query: str(page)}) if 1 <= page <= last else None

    return shown, Pages(
        start + 1 if shown else 0, start + len(shown), len(rows), at(number - 1), at(number + 1)
    )


def with_query(request: Request, **changes: str) -> str:
    """This page's address with other values."""
    kept = [(key, value) for key, value in request.query_params.multi_items() if key not in changes]
    return f"{request.url.path}?{urlencode([*kept, *changes.items()])}"


def frame(project: str, tab: str, title: str = "", waiting: str = "") -> dict[str, Any]:
    """Return what every billing page's template needs. `title`: another one than the tab's;
    `waiting`: what is said until the figures come."""
    base = project_url(project, "billing")
    tabs = [(f"{base}/{key}" if key else base, text, key == tab) for key, text, _ in TABS]
    title = title or next(title for key, _, title in TABS if key == tab)
    return {
        "section": "billing",
        "project": project,
        "tabs": tabs,
        "title": title,
        "waiting": waiting,
        "mark": MARK,
    }


def budget_bar(found: BudgetState) -> dict[str, Any]:
    """A budget as a bar."""
    budget = found.budget
    # Of a budget of 0 the first billed second is all.
    share = (
        found.spent.parts / budget.amount.parts
        if budget.amount.parts
        else float(found.spent.parts > 0)
    )
    beyond = found.spent.parts - budget.amount.parts
    return {
        "name": budget.name,
        "scope": budget.scope + (f" {budget.scope_value}" if budget.scope_value else ""),
        "period": found.period,
        "spent": cents(found.spent.parts),
        "amount": cents(budget.amount.parts),
        "share": formats.percent(share),
        "value": min(1.0, share),
        # a bar that is longer than the budget: the rest of it is what is beyond
        "most": max(1.0, share),
        "is_used_up": share >= 1,
        "is_near": NEAR_SHARE <= share < 1,
        "beyond": cents(beyond) if beyond > 0 else "",
        "thresholds": ", ".join(formats.percent(float(text)) for text in budget.thresholds),
    }


def csv_file(name: str, rows: Iterable[Sequence[str]]) -> Response:
    """A table as a file. A cell that a spreadsheet would take for a formula is quoted for it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    for row in rows:
        writer.writerow([f"'{cell}" if _FORMULA.match(cell) else cell for cell in row])
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.csv"',
        "Cache-Control": "no-store",
    }
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)
