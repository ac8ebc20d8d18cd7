"""Charges by time and by what they were for: what the console's explorer draws, tabulates and
writes as CSV.

Times are cut where the account's calendar does (its hours, days, months; a day has 23 or 25 hours
where the clocks change), costs are exact, and every second of every charge in the window is in
exactly one cell. So the cells, the rows and the bars add up to the bill of the window, whatever it
is grouped by.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from zoneinfo import ZoneInfo

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.domain import months
from podyard.domain.invoice import Invoice, JobSpan
from podyard.domain.usage import UsageRecord
from podyard.pricing.amounts import parts_per_second
from podyard.pricing.attribution import IDLE, Owned, ownership

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_SECONDS = 3_600
Exact = int | Fraction  # parts of a nano, as in base/money; a share of a credit may be no whole one


class CostBucket(StrEnum):
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


# How many bars there may be: a page of 60 kB with ten series has room for no more.
BUCKETS_MAX: Mapping[CostBucket, int] = {
    CostBucket.HOUR: 100,
    CostBucket.DAY: 100,
    CostBucket.MONTH: 60,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Cells:
    """Parts by group, one number for each span of time; the sums of each group, and of each span.
    Nothing of it is ever changed."""

    groups: Mapping[str, Sequence[int]]
    totals: Mapping[str, int]
    sums: Sequence[int]

    def plus(self, other: Cells) -> Cells:
        """The sums of both."""
        groups, totals = dict(self.groups), dict(self.totals)
        for name, row in other.groups.items():
            mine = groups.get(name)
            groups[name] = row if mine is None else [a + b for a, b in zip(mine, row, strict=True)]
            totals[name] = totals.get(name, 0) + other.totals[name]
        return Cells(groups, totals, [a + b for a, b in zip(self.sums, other.sums, strict=True)])


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One group, by spans of time, in parts: `before` commitments (at the prices of use) and
    `after` them. Credits pay the `paid` share of the latter. `gross` and `net` are their sums."""

    name: str
    before: Sequence[int]
    after: Sequence[int]
    paid: Sequence[Fraction]
    gross: Exact
    net: Exact

    @property
    def credits(self) -> Exact:
        """Return what commitments cover and credits pay: never positive."""
        return self.net - self.gross

    def by_span(self, measure: str) -> Sequence[Exact]:
        """`gross`, `credits` or `net`."""
        if measure == "gross":
            return self.before
        net = _net(self.after, self.paid)
        return net if measure == "net" else [a - b for a, b in zip(net, self.before, strict=True)]


def _net(after: Sequence[int], paid: Sequence[Fraction]) -> Sequence[Exact]:
    return [part - part * share for part, share in zip(after, paid, strict=True)] if paid else after


def edges(bucket: CostBucket, first: date, last: date, zone: str) -> list[int]:
    """The POSIX seconds between which the spans of time lie, from the start of one local day to the
    end of another.

    Raises INVALID_ARGUMENT for days in the wrong order, and for more than `BUCKETS_MAX` spans.
    """
    if last < first:
        raise invalid(f"{last} is before {first}", "to")
    start, stop = day_start(first, zone), day_start(last + timedelta(days=1), zone)
    if (stop - start) // _SHORTEST[bucket] > BUCKETS_MAX[bucket]:
        raise invalid(
            f"at most {BUCKETS_MAX[bucket]} bars: choose a shorter time, or a longer {bucket}",
            "bucket",
        )
    days = [day_start(first + timedelta(days=n), zone) for n in range((last - first).days + 2)]
    if bucket is CostBucket.MONTH:
        inner = [part.stop for _, part in months.split(range(start, stop), zone)]
        return [start, *inner]
    if bucket is CostBucket.DAY:
        return list(dict.fromkeys(days))  # a zone that skips a day has none of its seconds
    hours = [hour for a, b in itertools.pairwise(days) for hour in range(a, b, HOUR_SECONDS)]
    return [*hours, stop]


_SHORTEST: Mapping[CostBucket, int] = {
    CostBucket.HOUR: HOUR_SECONDS,
    CostBucket.DAY: 23 * HOUR_SECONDS,
    CostBucket.MONTH: 28 * 24 * HOUR_SECONDS,
}


def day_start(day: date, zone: str) -> int:
    """The first POSIX second of a local day, by the rule of `months`: the earlier of two midnights,
    and where there is none the moment at which clocks were put forward."""
    midnight = datetime(
        day.year, day.month, day.day, tzinfo=ZoneInfo(months.check_zone(zone)), fold=0
    )
    return (midnight.astimezone(UTC) - _EPOCH) // timedelta(seconds=1)


def local(second: int, zone: str) -> datetime:
    """Return what the zone's clocks show."""
    return (_EPOCH + timedelta(seconds=second)).astimezone(ZoneInfo(months.check_zone(zone)))


def label(second: int, bucket: CostBucket, zone: str) -> str:
    """Return how a span that begins here is called; an hour that the clocks show twice has its
    offset."""
    moment = local(second, zone)
    if bucket is CostBucket.MONTH:
        return moment.strftime("%Y-%m")
    if bucket is CostBucket.DAY:
        return moment.strftime("%Y-%m-%d")
    twice = moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()
    return moment.strftime("%m-%d %H:%M") + (moment.strftime("%z")[:3] if twice else "")


def cells(charges: Iterable[tuple[str, UsageRecord]], spans: Sequence[int]) -> Cells:
    """Return what the charges, each with its group, cost in each span between two `spans`."""
    count = len(spans) - 1
    first, last = spans[0], spans[-1]
    found: dict[str, list[int]] = {}
    for name, charge in charges:
        start, stop = charge.start_second, charge.start_second + charge.seconds
        if stop <= first or start >= last:
            continue
        row = found.get(name)
        if row is None:
            row = found[name] = [0] * count
        rate = parts_per_second(charge)
        start, stop = max(start, first), min(stop, last)
        index = bisect.bisect_right(spans, start) - 1
        while start < stop:
            end = min(stop, spans[index + 1])
            row[index] += (end - start) * rate
            start, index = end, index + 1
    sums = [sum(column) for column in zip(*found.values(), strict=True)] or [0] * count
    return Cells(found, {name: sum(row) for name, row in found.items()}, sums)


def owners(spans: Iterable[JobSpan], as_of: PlatformTime) -> Mapping[str, Sequence[Owned]]:
    """Return which seconds of each resource belong to which job."""
    on: dict[str, list[JobSpan]] = {}
    for span in spans:
        on.setdefault(span.resource_id, []).append(span)
    return {resource: ownership(found, as_of) for resource, found in on.items()}


def by_job(charge: UsageRecord, mine: Sequence[Owned]) -> Iterator[tuple[str, UsageRecord]]:
    """The parts of a charge, each with the job that its resource's seconds belong to, or `idle`
    (R12)."""
    at, stop = charge.start_second, charge.start_second + charge.seconds
    index = bisect.bisect_right(mine, at, key=lambda o: o.seconds.stop)
    for one in itertools.islice(mine, index, None):
        if one.seconds.start >= stop:
            break
        end = min(stop, one.seconds.stop)
        if at < one.seconds.start:
            yield IDLE, charge.part(range(at, one.seconds.start))
            at = one.seconds.start
        yield one.job_id, charge.part(range(at, end))
        at = end
    if at < stop:
        yield IDLE, charge.part(range(at, stop))


def paid_by_credits(invoices: Iterable[Invoice]) -> Mapping[str, Fraction]:
    """By month, which share of its charges the account's credits pay. They are of the month and of
    no resource, so each charge has the same share of them."""
    found = {}
    for invoice in invoices:
        charged = sum(line.amount.parts for line in invoice.lines)
        credited = sum(line.amount.parts for line in invoice.credits)
        if credited:
            found[invoice.month] = Fraction(-credited, charged)
    return found


def rows(
    gross: Cells,
    net: Cells,
    spans: Sequence[int],
    paid: Mapping[str, Fraction],
    zone: str,
    names: Iterable[str],
) -> list[Row]:
    """The groups of these names, the dearest first. `net`: after commitments; `paid`: the share
    that credits pay."""
    shares = _shares(spans, paid, zone)
    nothing = [0] * len(gross.sums)
    found = []
    for name in names:
        before, after = gross.groups.get(name, nothing), net.groups.get(name, nothing)
        total: Exact = sum(_net(after, shares)) if shares else net.totals.get(name, 0)
        found.append(Row(name, before, after, shares, gross.totals.get(name, 0), total))
    return in_order(found)


def in_order(found: Iterable[Row]) -> list[Row]:
    """The dearest first, then by name."""
    return sorted(sorted(found, key=lambda row: row.name), key=lambda row: row.gross, reverse=True)


def _shares(spans: Sequence[int], paid: Mapping[str, Fraction], zone: str) -> Sequence[Fraction]:
    return (
        [paid.get(months.month_of(second, zone), Fraction(0)) for second in spans[:-1]]
        if paid
        else []
    )


def whole(
    gross: Cells, net: Cells, spans: Sequence[int], paid: Mapping[str, Fraction], zone: str
) -> Row:
    """The sum of all groups."""
    shares = _shares(spans, paid, zone)
    return Row("", gross.sums, net.sums, shares, sum(gross.sums), sum(_net(net.sums, shares)))


def fold(found: Sequence[Row], total: Row, most: int, others: str) -> list[Row]:
    """The first `most` rows and one that is what they miss of the total, if there are any
    others."""
    if len(found) <= most + 1:
        return list(found)
    first = found[:most]
    before = _without(total.before, [row.before for row in first])
    after = _without(total.after, [row.after for row in first])
    gross, net = (
        total.gross - sum(row.gross for row in first),
        total.net - sum(row.net for row in first),
    )
    return [*first, Row(f"{others} ({len(found) - most:,})", before, after, total.paid, gross, net)]


def _without(sums: Sequence[int], lists: Sequence[Sequence[int]]) -> list[int]:
    return [whole - sum(parts) for whole, *parts in zip(sums, *lists, strict=True)]


def apportion(values: Sequence[Exact], unit: int, total: int | None = None) -> list[int]:
    """Whole numbers of `unit` parts that sum to `total`: by default the exact sum, rounded halves
    away from zero.

    Method of the largest remainder: each value rounded down, and the units that are missing go to
    those that lost most; of equals to the first.
    """
    if not values:
        return []
    floors = [value // unit for value in values]
    missing = (round_half(sum(values), unit) if total is None else total) - sum(floors)
    each, missing = divmod(missing, len(values))
    lost = [value - floor * unit for value, floor in zip(values, floors, strict=True)]
    made = [floor + each for floor in floors]
    for index in sorted(range(len(values)), key=lost.__getitem__, reverse=True)[:missing]:
        made[index] += 1
    return made


def in_units(values: Sequence[tuple[Exact, Exact]], unit: int) -> list[tuple[int, int, int]]:
    """(gross, credits, net) of each pair of gross and net, in whole units: the columns add up, and
    each row to its
    net."""
    net = apportion([after for _, after in values], unit)
    paid = [after - before for before, after in values]
    credits = apportion(paid, unit) if any(paid) else [0] * len(values)
    return [(after - credit, credit, after) for credit, after in zip(credits, net, strict=True)]


def round_half(value: Exact, unit: int) -> int:
    """To the nearest whole number of units, halves away from zero."""
    size = -value if value < 0 else value
    whole = (2 * size + unit) // (2 * unit)
    return -whole if value < 0 else whole


@dataclasses.dataclass(frozen=True, slots=True)
class Invoiced:
    """The charges of one month's invoice, in parts of its currency, a minor unit of which has
    `unit` parts.

    `groups`: what each group costs before and after credits, exactly; `subtotal`: their sum as the
    invoice states it, in minor units (None: only some of its charges are asked for). `others`: what
    belongs to no group, in minor units: tax, and corrections of earlier months."""

    month: str
    unit: int
    groups: Mapping[str, tuple[Exact, Exact]]
    subtotal: int | None
    others: Sequence[tuple[str, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class Booked:
    """One group by invoice month, in minor units: gross + credits = net in each month."""

    name: str
    gross: Sequence[int]
    credits: Sequence[int]
    net: Sequence[int]


def book(found: Sequence[Invoiced]) -> list[Booked]:
    """The groups, the dearest first, and then what belongs to none. Each month's nets add up to its
    invoice's total: an invoice is rounded by itself, so months are shown by themselves, too."""
    groups = list(dict.fromkeys(name for month in found for name in month.groups))
    others = list(dict.fromkeys(name for month in found for name, _ in month.others))
    nets: dict[str, list[int]] = {name: [0] * len(found) for name in (*groups, *others)}
    credits = {name: [0] * len(found) for name in nets}
    for index, month in enumerate(found):
        net = apportion([after for _, after in month.groups.values()], month.unit, month.subtotal)
        credited = apportion(
            [after - before for before, after in month.groups.values()], month.unit
        )
        for name, minor, less in zip(month.groups, net, credited, strict=True):
            nets[name][index] += minor
            credits[name][index] += less
        for name, minor in month.others:
            nets[name][index] += minor
    made = [
        Booked(
            name,
            [a - b for a, b in zip(nets[name], credits[name], strict=True)],
            credits[name],
            nets[name],
        )
        for name in nets
    ]
    ordered = sorted(
        sorted(made[: len(groups)], key=lambda one: one.name),
        key=lambda one: sum(one.gross),
        reverse=True,
    )
    return [*ordered, *made[len(groups) :]]
