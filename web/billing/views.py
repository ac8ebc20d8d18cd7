"""The explorer's answers, by date of use or by invoice month: rows, bars and their sum in whole
minor units, so that they add up."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.base.money import amount_text, minor_text
from podyard.control.billing.accounts import USD
from podyard.control.billing.explorer import Explored, Question
from podyard.control.billing.snapshots import Snapshot
from podyard.domain.account import Account
from podyard.pricing import explore
from podyard.pricing.explore import Booked, CostBucket, Exact, Invoiced, Row, apportion
from podyard.web.billing.common import CENT, height, short
from podyard.web.kit.formats import number

SERIES_MAX = 9  # and the others: ten colours
OTHERS = "others"


@dataclasses.dataclass(frozen=True, slots=True)
class BillLineView:
    """A row of the table in minor units that add up, and what it is exactly, where that is asked.
    `is_group`: it is one of those that were asked for, and not tax or a correction."""

    name: str
    gross: int
    credits: int
    net: int
    exact: Exact | None = None
    is_group: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """`bars`: label, length and height in minor units; `series`: what is drawn, in units of the
    currency."""

    currency: str
    decimals: int
    as_of: PlatformTime
    lines: Sequence[BillLineView]
    bars: Sequence[tuple[str, str, int]]
    series: Sequence[tuple[str, Sequence[float]]]

    @property
    def total(self) -> BillLineView:
        exact = (
            None
            if any(line.exact is None for line in self.lines)
            else sum(line.exact or 0 for line in self.lines)
        )
        gross, credits, net = (
            sum(getattr(line, name) for line in self.lines) for name in ("gross", "credits", "net")
        )
        return BillLineView("Total", gross, credits, net, exact)

    @property
    def bars_total(self) -> int:
        return sum(minor for _, _, minor in self.bars)

    def money(self, minor: int) -> str:
        """`$1,234.56`, `1,234.56 EUR`."""
        return amount_text(self.plain(minor), self.currency)

    def plain(self, minor: int) -> str:
        """`1234.56`, for a file."""
        return minor_text(minor, self.decimals)

    def short(self, value: float) -> str:
        """For an axis."""
        return short(value) if self.currency == USD else short(value).replace("$", "")


def table(rows: Sequence[Row]) -> list[BillLineView]:
    """Every row in cents, so that the columns add up to their totals, and each row to its net."""
    cents = explore.in_units([(row.gross, row.net) for row in rows], CENT)
    return [
        BillLineView(row.name, *minors, row.net) for row, minors in zip(rows, cents, strict=True)
    ]


def by_use(found: Snapshot, asked: Question, answer: Explored, measure: str) -> View:
    """Charges by the time of their seconds, in US dollars before tax."""
    lines = table(answer.rows)
    labels = [
        explore.label(second, asked.bucket, found.account.time_zone) for second in answer.spans[:-1]
    ]
    lengths = [
        _length(b - a, asked.bucket) for a, b in zip(answer.spans, answer.spans[1:], strict=False)
    ]
    drawn = explore.fold(answer.rows, answer.total, SERIES_MAX, OTHERS)
    heights = apportion(
        answer.total.by_span(measure), CENT, sum(getattr(line, measure) for line in lines)
    )
    return View(
        currency=USD,
        decimals=2,
        as_of=found.as_of,
        lines=lines,
        bars=list(zip(labels, lengths, heights, strict=True)),
        series=[(row.name, [height(value) for value in row.by_span(measure)]) for row in drawn],
    )


def by_invoice(
    account: Account, as_of: PlatformTime, found: Sequence[Invoiced], measure: str
) -> View:
    """Charges by the invoice that carries them, in its currency, with tax and corrections: a bar is
    an invoice."""
    rows = explore.book(found)
    groups = {name for month in found for name in month.groups}
    lines = [
        BillLineView(
            row.name, sum(row.gross), sum(row.credits), sum(row.net), None, row.name in groups
        )
        for row in rows
    ]
    sums = [
        sum(column) for column in zip(*(_measure(row, measure) for row in rows), strict=True)
    ] or [0] * len(found)
    unit = 10**account.decimals
    return View(
        currency=account.currency,
        decimals=account.decimals,
        as_of=as_of,
        lines=lines,
        bars=[(month.month, "", minor) for month, minor in zip(found, sums, strict=True)],
        series=[
            (name, [minor / unit for minor in minors]) for name, minors in _fold(rows, measure)
        ],
    )


def _measure(row: Booked, measure: str) -> Sequence[int]:
    found: Sequence[int] = getattr(row, measure)
    return found


def _fold(rows: Sequence[Booked], measure: str) -> list[tuple[str, Sequence[int]]]:
    """The first series, and one of all others if there are any."""
    named = [(row.name, _measure(row, measure)) for row in rows]
    if len(named) <= SERIES_MAX + 1:
        return named
    rest = [
        sum(column) for column in zip(*(minors for _, minors in named[SERIES_MAX:]), strict=True)
    ]
    return [*named[:SERIES_MAX], (f"{OTHERS} ({len(named) - SERIES_MAX:,})", rest)]


def _length(seconds: int, bucket: CostBucket) -> str:
    """`25 h`: said of days, since not all are equal."""
    return f"{number(seconds / 3600)} h" if bucket is CostBucket.DAY else ""
