"""The explorer: any time, by any dimension, as bars, as a table with the same total, and as CSV.

The address holds all that was asked, so it can be kept and passed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.control import dashboard
from podyard.control.dashboard import DIMENSIONS, Explored, Question
from podyard.control.snapshots import Snapshot
from podyard.db.unit_of_work import UnitOfWork
from podyard.pricing import explore
from podyard.pricing.commitments import seconds_until
from podyard.pricing.explore import Bucket, Exact, Row, shown
from podyard.web import charts
from podyard.web.billing_common import (
    CENT,
    csv_file,
    dollars,
    exactly,
    frame,
    height,
    pages,
    read,
    short,
    with_query,
)
from podyard.web.formats import number
from podyard.web.render import ConsoleRoute, page

SERIES_MAX = 9  # and the others: ten colours
WHERE_MAX = 10  # filters in one address
VALUE_LENGTH_MAX = 256
MEASURES = {"net": "Net", "gross": "Gross", "credits": "Credits"}

router = APIRouter(prefix="/explorer", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: cents that add up, and what they are exactly."""

    name: str
    gross: int
    credits: int
    net: int
    exact: Exact


@router.get("")
def show(request: Request, project: str) -> Response:
    fields = request.query_params

    def body(uow: UnitOfWork, found: Snapshot) -> tuple[Snapshot, Question, Explored | None, str, list[str]]:
        keys = sorted({key for labels in dashboard.labels_of(uow, project).values() for key in labels})
        asked = _usual(found)
        try:
            asked = _question(found, fields, fields.getlist("where"))
            return found, asked, dashboard.ask(uow, found, asked), "", keys
        except PodyardError as error:
            return found, asked, None, error.message, keys

    found, asked, answer, error, label_keys = read(request, project, body)
    measure = fields.get("measure", "net") if fields.get("measure") in MEASURES else "net"
    lines = [] if answer is None else table(answer.rows)
    if fields.get("format") == "csv" and answer is not None:
        return csv_file(f"{project}-{asked.first}-{asked.last}", _csv(asked, lines))
    rows, numbers = pages(request, lines)
    return page(
        request,
        "billing_explorer.html",
        status=200 if answer else 400,
        **frame(project, "explorer"),
        found=found,
        asked=asked,
        measure=measure,
        measures=MEASURES,
        buckets=list(Bucket),
        dimensions=[*(d for d in DIMENSIONS if d != "label"), *(f"label:{key}" for key in label_keys)],
        rows=[(line, dollars(line.gross), dollars(line.credits), dollars(line.net)) for line in rows],
        links={line.name: _narrowed(request, asked, line.name) for line in rows},
        pages=numbers,
        total=_total(lines),
        csv=with_query(request, format="csv"),
        error=error,
        **({} if answer is None else _picture(found, asked, answer, measure, lines)),
    )


def table(rows: Sequence[Row]) -> list[Line]:
    """Every row in cents, so that the columns add up to their totals, and each row to its net."""
    nets = [row.net for row in rows]
    net = shown(nets, CENT)
    credits = shown([row.credits for row in rows], CENT) if any(row.credits for row in rows) else [0] * len(rows)
    return [Line(row.name, net[i] - credits[i], credits[i], net[i], nets[i]) for i, row in enumerate(rows)]


def _total(lines: Sequence[Line]) -> dict[str, str]:
    net, credits = sum(line.net for line in lines), sum(line.credits for line in lines)
    exact = sum(line.exact for line in lines)
    return {
        "gross": dollars(net - credits),
        "credits": dollars(credits),
        "net": dollars(net),
        "exact": exactly(exact),
    }


def _picture(found: Snapshot, asked: Question, answer: Explored, measure: str, lines: Sequence[Line]) -> dict[str, Any]:
    """The bars; and their heights in cents, which add up to the table's total."""
    zone = found.account.time_zone
    labels = [explore.label(second, asked.bucket, zone) for second in answer.spans[:-1]]
    drawn = explore.folded(answer.rows, answer.total, SERIES_MAX, "others")
    series = [(row.name, [height(value) for value in row.by_span(measure)]) for row in drawn]
    name = f"{MEASURES[measure]} cost by {asked.bucket} and {asked.group}"
    below = [text[5:] if asked.bucket is Bucket.DAY else text for text in labels]
    chart = charts.stacked_series(name, below, series, unit=f"US dollars a {asked.bucket}", shown=short)
    sums = answer.total.by_span(measure)
    total = sum(getattr(line, measure) for line in lines)
    bars = zip(labels, answer.spans, answer.spans[1:], shown(sums, CENT, total), strict=False)
    return {
        "chart": chart,
        "series": [row.name for row in drawn],
        "bars": [(text, _length(stop - start, asked.bucket), dollars(minor)) for text, start, stop, minor in bars],
        "bars_total": dollars(total),
    }


def _length(seconds: int, bucket: Bucket) -> str:
    """`25 h`: said of days, since not all are equal."""
    return f"{number(seconds / 3600)} h" if bucket is Bucket.DAY else ""


def _csv(asked: Question, lines: Sequence[Line]) -> list[Sequence[str]]:
    head = [asked.group, "gross USD", "credits USD", "net USD", "net exact USD"]
    rows = [[line.name, *_cells(line.gross, line.credits, line.net), exactly(line.exact)] for line in lines]
    net, credits = sum(line.net for line in lines), sum(line.credits for line in lines)
    exact = exactly(sum(line.exact for line in lines))
    return [head, *rows, ["Total", *_cells(net - credits, credits, net), exact]]


def _cells(*minors: int) -> list[str]:
    return [exactly(minor * CENT, 2) for minor in minors]


def _narrowed(request: Request, asked: Question, value: str) -> str:
    """The same for one group only, with all filters that stand."""
    gone = ("where", "dim", "value", "page")
    kept = [(key, text) for key, text in request.query_params.multi_items() if key not in gone]
    pairs = dict.fromkeys((*asked.where, (asked.group, value)))
    kept += [("where", f"{dimension}={text}") for dimension, text in pairs]
    return f"{request.url.path}?{urlencode(kept)}"


def _usual(found: Snapshot) -> Question:
    """The present month by day and type."""
    zone = found.account.time_zone
    first = explore.local(found.month_seconds().start, zone).date()
    last = explore.local(seconds_until(found.as_of) - 1, zone).date()
    return Question(first, max(first, last), Bucket.DAY, "type")


def _question(found: Snapshot, fields: Mapping[str, str], where: Sequence[str]) -> Question:
    usual = _usual(found)
    pairs = [tuple(text.split("=", 1)) for text in where if "=" in text]
    if fields.get("dim") and fields.get("value"):
        pairs.append((fields["dim"], fields["value"]))
    kept = tuple(dict.fromkeys((pair[0], pair[1]) for pair in pairs))
    if len(kept) > WHERE_MAX or any(len(part) > VALUE_LENGTH_MAX for pair in kept for part in pair):
        raise invalid(f"at most {WHERE_MAX} filters, of {VALUE_LENGTH_MAX} characters", "where")
    bucket = fields.get("bucket") or usual.bucket
    if bucket not in tuple(Bucket):
        raise invalid(f"{str(bucket)[:40]!r} is none of {', '.join(Bucket)}", "bucket")
    return Question(
        _day(fields.get("from"), usual.first, "from"),
        _day(fields.get("to"), usual.last, "to"),
        Bucket(bucket),
        fields.get("group") or usual.group,
        kept,
    )


def _day(text: str | None, usual: date, field: str) -> date:
    if not text:
        return usual
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = date.min
    if not 1970 <= found.year < 9000:
        raise invalid(f"{text[:40]!r} is not a day such as 2026-03-08", field)
    return found
