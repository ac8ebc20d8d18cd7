"""The explorer: any time, by any dimension, as bars, as a table with the same total, and as CSV.

The address holds all that was asked, so it can be kept and passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.money import amount_text
from podyard.control.billing import accounts, explorer, explorer_invoices
from podyard.control.billing.accounts import USD
from podyard.control.billing.explorer import BY_INVOICE, BY_USE, DIMENSIONS, Question
from podyard.control.billing.snapshots import Snapshot
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.principal import Principal
from podyard.http import context
from podyard.pricing import explore
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.explore import CostBucket
from podyard.web.billing.common import csv_file, exactly, frame, make_once, pages, read, with_query
from podyard.web.billing.stream import stream
from podyard.web.billing.views import View, by_invoice, by_use
from podyard.web.kit import charts
from podyard.web.kit.render import ConsoleRoute, page

MEASURES = {"net": "Net", "gross": "Gross", "credits": "Credits"}
WAYS = {BY_USE: "date of use", BY_INVOICE: "invoice month"}

router = APIRouter(prefix="/explorer", route_class=ConsoleRoute)


def _askable(uow: UnitOfWork, request: Request, project: str, _month: str) -> int:
    """The page's status: a question that cannot be asked is shown with its reason."""
    try:
        account = accounts.of(uow, project)
        asked = _question(account, uow.now, request)
        if asked.by == BY_INVOICE:
            explorer_invoices.months_asked(asked)
        else:
            explorer.spans_of(asked, account.time_zone)
    except PodyardError as error:
        return error.code.http_status
    return 200


@router.get("")
@stream("explorer", check=_askable)
def show(request: Request, project: str) -> Response:
    fields, caller = request.query_params, context.principal(request)
    measure = fields.get("measure", "net") if fields.get("measure") in MEASURES else "net"

    def body(
        uow: UnitOfWork, found: Snapshot
    ) -> tuple[Snapshot, Question, View | None, PodyardError | None, list[str]]:
        keys = explorer.label_keys(found)
        asked = explorer.to_question(found.account, found.as_of, {}, ())
        try:
            asked = _question(found.account, found.as_of, request)
            return found, asked, _answer(uow, caller, found, asked, measure), None, keys
        except PodyardError as error:
            return found, asked, None, error, keys

    found, asked, view, error, label_keys = read(request, project, body)
    if fields.get("format") == "csv" and view is not None:
        return csv_file(f"{project}-{asked.first}-{asked.last}", _csv(asked, view))
    rows, numbers = pages(request, [] if view is None else view.lines)
    return page(
        request,
        "billing_explorer.html",
        status=200 if error is None else error.code.http_status,
        **frame(project, "explorer"),
        found=found,
        asked=asked,
        ways=WAYS,
        measure=measure,
        measures=MEASURES,
        buckets=list(CostBucket),
        dimensions=[
            *(d for d in DIMENSIONS if d != "label"),
            *(f"label:{key}" for key in label_keys),
        ],
        view=view,
        rows=rows,
        links={line.name: _narrow_url(request, asked, line.name) for line in rows if line.is_group},
        pages=numbers,
        exact="" if view is None else amount_text(exactly(view.total.exact or 0), USD),
        csv=with_query(request, format="csv"),
        error="" if error is None else error.message,
        chart=None if view is None else _chart(asked, view, measure),
    )


def _answer(
    uow: UnitOfWork, caller: Principal, found: Snapshot, asked: Question, measure: str
) -> View:
    if asked.by == BY_USE:
        return by_use(found, asked, explorer.ask(uow, found, asked), measure)
    card = default_rate_card()
    key = ("invoiced", asked)
    as_of, booked = make_once(
        found, key, lambda: explorer_invoices.ask_invoiced(uow, card, caller, found, asked)
    )
    return by_invoice(found.account, as_of, booked, measure)


def _chart(asked: Question, view: View, measure: str) -> Markup:
    by = "invoice month" if asked.by == BY_INVOICE else asked.bucket
    labels = [text[5:] if by == CostBucket.DAY else text for text, _, _ in view.bars]
    unit = f"{view.currency if view.currency != 'USD' else 'US dollars'} a {by}"
    name = f"{MEASURES[measure]} cost by {by} and {asked.group}"
    hover = [_hover(view, index) for index in range(len(labels))]
    return charts.stacked_series(
        name,
        labels,
        view.series,
        unit=unit,
        shown=view.short,
        hover=hover,
        width=charts.FULL_WIDTH,
    )


def _hover(view: View, index: int) -> str:
    """The bar's own figure, as in the table of bars, and below it what it is made of, which adds up
    to it."""
    text, _, minor = view.bars[index]
    parts = [(name, values[index]) for name, values in view.series if values[index]]
    minors = explore.apportion(
        [Fraction(value) * 10**view.decimals for _, value in parts], 1, minor
    )
    lines = [f"{name}: {view.money(share)}" for (name, _), share in zip(parts, minors, strict=True)]
    return "\n".join([f"{text}: {view.money(minor)}", *(lines if len(lines) > 1 else [])])


def _csv(asked: Question, view: View) -> list[Sequence[str]]:
    head = [asked.group, *(f"{name} {view.currency}" for name in ("gross", "credits", "net"))]
    rows = [
        [line.name, *(view.plain(minor) for minor in (line.gross, line.credits, line.net))]
        for line in view.lines
    ]
    total = [
        "Total",
        *(view.plain(minor) for minor in (view.total.gross, view.total.credits, view.total.net)),
    ]
    if view.total.exact is None:
        return [head, *rows, total]
    exact = [exactly(line.exact or 0) for line in (*view.lines, view.total)]
    return [
        [*head, f"net exact {view.currency}"],
        *([*row, text] for row, text in zip((*rows, total), exact, strict=True)),
    ]


def _narrow_url(request: Request, asked: Question, value: str) -> str:
    """The same for one group only, with all filters that stand."""
    gone = ("where", "dim", "value", "page")
    kept = [(key, text) for key, text in request.query_params.multi_items() if key not in gone]
    pairs = dict.fromkeys((*asked.where, (asked.group, value)))
    kept += [("where", f"{dimension}={text}") for dimension, text in pairs]
    return f"{request.url.path}?{urlencode(kept)}"


def _question(account: Account, as_of: PlatformTime, request: Request) -> Question:
    """Return what the address asks, where the form sends fields that nobody filled in; it adds one
    filter by its fields `dim` and `value`."""
    fields = request.query_params
    where = fields.getlist("where")
    if fields.get("dim") and fields.get("value"):
        where = [*where, f"{fields['dim']}={fields['value']}"]
    filled = {name: text for name, text in fields.items() if text}
    return explorer.to_question(account, as_of, filled, where)
