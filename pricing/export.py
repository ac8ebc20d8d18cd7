"""The rows of an export: what an invoice is made of, by resource, SKU, price version and day or
hour.

Amounts are exact until they are shown: each row is converted with the month's one rate and shown
with 12 decimals. A last row, the rounding error, is what all others miss of the invoice's total, so
that the sum of an export's amounts is the total, exactly. It also holds what the invoice rounds to
whole minor units.

Rows come one resource after the other, each in order of time, then commitments, credits, tax,
corrections and the rounding error. Only one resource's rows are in memory at a time.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import NANOS_PER_UNIT, PARTS_PER_NANO, Amount, round_half_up
from podyard.domain import months
from podyard.domain.invoice import Adjustment, Commitment, line_id
from podyard.domain.node import UsageClass
from podyard.domain.usage import (
    BilledKind,
    BilledResource,
    PriceUnit,
    PriceVersion,
    UsageRecord,
    label_periods,
    labels_at,
)
from podyard.pricing.amounts import parts_per_second
from podyard.pricing.attribution import IDLE, Owned
from podyard.pricing.commitments import OWN, is_payment
from podyard.pricing.export_slices import Slices

DECIMALS = 12  # as the worked cases print exact amounts
_PARTS_PER_UNIT = PARTS_PER_NANO * NANOS_PER_UNIT


class RowKind(StrEnum):
    """The kind of a row. Usage rows are of a resource; all others are of the invoice as a whole."""

    USAGE = "usage"
    COMMITMENT = "commitment"
    CREDIT = "credit"
    TAX = "tax"
    ADJUSTMENT = "adjustment"
    ROUNDING = "rounding_error"


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """A SKU as Google's catalogue names it."""

    service_id: str
    service: str
    sku_id: str
    description: str


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceFacts:
    """The facts of a resource in an export: what it was with the labels that it had, and the SKU
    that sells it."""

    node: BilledResource
    number: int
    reservation: str | None
    listed: Listed

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def zone(self) -> str:
        return self.node.zone

    @property
    def region(self) -> str:
        return self.node.region

    @property
    def availability_zone(self) -> str | None:
        return (
            None if self.node.kind in (BilledKind.BUCKET, BilledKind.OPERATION) else self.node.zone
        )

    @property
    def type(self) -> str:
        return self.node.type

    @property
    def usage(self) -> UsageClass:
        return self.node.usage_class


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """A commitment as it is billed (`upfront`: at no price), and the price at which it was
    bought."""

    billed: Commitment
    bought_nanos: int
    upfront: bool
    region: str


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """The sums of the invoice, which an export has to reach. `project`: whose account it is of;
    `tax`, `adjustments` and `total` are in the minor unit; `credits` are exact parts of a US dollar
    and never positive; `lines` are exact, too, by id."""

    number: str
    project: str
    month: str
    seconds: range
    time_zone: str
    currency: str
    decimals: int
    exchange: Fraction
    issued: bool
    as_of: PlatformTime
    lines: Mapping[str, int]
    credits: Sequence[tuple[str, int]]
    tax: int
    adjustments: Sequence[Adjustment]
    total: int


@dataclasses.dataclass(frozen=True, slots=True)
class ExportSource:
    """One month to export. `charges` are those of its bill, resource by resource; `owners` None:
    nobody asked whose the seconds were. `exported_at` is platform time."""

    statement: Statement
    charges: Sequence[UsageRecord]
    commitments: Mapping[str, Committed]
    resources: Mapping[str, ResourceFacts]
    owners: Mapping[str, Sequence[Owned]] | None
    exported_at: PlatformTime


@dataclasses.dataclass(frozen=True, slots=True)
class ExportRow:
    """One row. `start` and `stop` are POSIX seconds: the part of its day or hour that is in the
    month.

    `unit_seconds`: seconds times units, of which `covered` (by commitment) are paid for already. A
    commitment's row has what was charged in `unit_seconds` and what nobody used of it in `unused`.
    `parts`: the exact net cost in US dollars, where there is one; `shown`: the amount in 1e-12 of
    the account's currency. `corrects`: the month that a correction is of, and `corrects_line` the
    line of its invoice that an item of the correction is of.
    """

    kind: RowKind
    start: int
    stop: int
    shown: int
    text: str
    parts: int | None = None
    resource: ResourceFacts | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sku_id: str = ""
    unit: PriceUnit | None = None
    price: PriceVersion | None = None
    seconds: int = 0
    unit_seconds: int = 0
    covered: tuple[tuple[str, int], ...] = ()
    unused: int = 0
    job: str = ""
    estimated: bool = False
    commitment: str = ""
    credit: str = ""
    corrects: str = ""
    corrects_line: str = ""

    @property
    def covered_unit_seconds(self) -> int:
        return sum(units for _, units in self.covered)


def project_of(said: Statement, row: ExportRow) -> str:
    """Whose use a row is of; what belongs to no node is the account's own project's."""
    return said.project if row.resource is None else row.resource.node.project


def in_currency(parts: int, exchange: Fraction) -> int:
    """An exact amount in US dollars as 1e-12 of the account's currency, rounded once."""
    return round_half_up(
        parts * 10**DECIMALS * exchange.numerator, _PARTS_PER_UNIT * exchange.denominator
    )


def rows(source: ExportSource, granularity: str) -> Iterator[ExportRow]:
    """All rows of a month; `granularity` is `day` or `hour`. The amounts sum to the invoice's
    total."""
    return _Rows(source, granularity).run()


# Slice, SKU, price (since when, and its version), labels, job.
_RowKey = tuple[int, str, PlatformTime, str, tuple[tuple[str, str], ...], str]


@dataclasses.dataclass(slots=True)
class _GroupSum:
    """Everything of one resource that goes into one row."""

    charge: UsageRecord
    labels: Mapping[str, str]
    seconds: int = 0
    unit_seconds: int = 0
    parts: int = 0
    estimated: bool = False
    covered: dict[str, int] = dataclasses.field(default_factory=dict)


class _Rows:
    def __init__(self, source: ExportSource, granularity: str) -> None:
        self._source = source
        self._statement = source.statement
        self._slices = Slices(source.statement.seconds, source.statement.time_zone, granularity)
        self._used: dict[tuple[str, int], int] = {}  # covered unit-seconds, by commitment and slice
        self._lines: dict[str, int] = dict.fromkeys(source.statement.lines, 0)  # parts
        self._left = source.statement.total * 10 ** (DECIMALS - source.statement.decimals)

    def run(self) -> Iterator[ExportRow]:
        for row in itertools.chain(self._usage(), self._fees(), self._rest()):
            self._left -= row.shown
            if row.price is not None and row.parts is not None:
                key = line_id(row.sku_id, row.price.nanos)
                self._lines[key] = self._lines.get(key, 0) + row.parts
            yield row
        self._check_lines()
        yield self._whole(RowKind.ROUNDING, self._left, "Rounding error")

    def _check_lines(self) -> None:
        """Raises DATA_LOSS where the rows are not those of the invoice: no amount may differ from
        one surface to the other."""
        for key, parts in self._lines.items():
            stated = self._statement.lines.get(key, 0)
            if parts != stated:
                difference = Amount(parts - stated).text(DECIMALS)
                text = (
                    f"{key}: the rows of {self._statement.month} differ from the invoice by "
                    f"{difference} USD"
                )
                raise PodyardError(Code.DATA_LOSS, f"{text}; no export is made")

    def _usage(self) -> Iterator[ExportRow]:
        resources = self._source.resources
        of_resources = (c for c in self._source.charges if c.resource_id in resources)
        for resource_id, charges in itertools.groupby(of_resources, key=lambda c: c.resource_id):
            facts = resources[resource_id]
            sums: dict[_RowKey, _GroupSum] = {}
            for charge in charges:
                for labelled, labels in label_periods(facts.node, charge.seconds_used):
                    for piece, place, job in self._pieces(charge.resource_id, labelled):
                        self._add(sums, charge, piece, place, labels, job)
            for (place, *_, job), found in sorted(sums.items(), key=lambda item: item[0]):
                yield self._used_row(facts, place, job, found)

    def _pieces(self, resource_id: str, seconds: range) -> Iterator[tuple[range, int, str]]:
        """The parts of these seconds within the month: each with its slice and owner."""
        owners = self._source.owners
        owned = None if owners is None else owners.get(resource_id, ())
        for place, part in self._slices.split(seconds):
            if owned is None:
                yield part, place, ""
            else:
                yield from ((piece, place, job) for piece, job in _by_owner(part, owned))

    def _add(
        self,
        sums: dict[_RowKey, _GroupSum],
        charge: UsageRecord,
        piece: range,
        place: int,
        labels: Mapping[str, str],
        job: str,
    ) -> None:
        price = charge.price
        key = (
            place,
            charge.sku_id,
            price.effective_from,
            price.version_id,
            tuple(sorted(labels.items())),
            job,
        )
        found = sums.get(key)
        if found is None:
            found = sums[key] = _GroupSum(charge, labels)
        found.seconds += len(piece)
        found.unit_seconds += len(piece) * charge.units
        found.parts += parts_per_second(charge) * len(piece)
        found.estimated = found.estimated or (charge.estimated and not self._statement.issued)
        for commitment, units in charge.covered:
            unit_seconds = len(piece) * units
            found.covered[commitment] = found.covered.get(commitment, 0) + unit_seconds
            self._used[commitment, place] = self._used.get((commitment, place), 0) + unit_seconds

    def _used_row(self, facts: ResourceFacts, place: int, job: str, found: _GroupSum) -> ExportRow:
        seconds = self._slices.seconds(place)
        return ExportRow(
            kind=RowKind.USAGE,
            start=seconds.start,
            stop=seconds.stop,
            shown=in_currency(found.parts, self._statement.exchange),
            text=facts.listed.description,
            parts=found.parts,
            resource=facts,
            labels=found.labels,
            sku_id=found.charge.sku_id,
            unit=found.charge.unit,
            price=found.charge.price,
            seconds=found.seconds,
            unit_seconds=found.unit_seconds,
            covered=tuple(sorted(found.covered.items())),
            job=job,
            estimated=found.estimated,
        )

    def _fees(self) -> Iterator[ExportRow]:
        for charge in self._source.charges:
            if not charge.resource_id.startswith(OWN):
                continue
            commitment = charge.resource_id.removeprefix(OWN)
            # of it nothing is used or left over: the seconds of the term are charged
            paid = is_payment(charge.sku_id)
            for place, part in self._slices.split(charge.seconds_used):
                seconds = self._slices.seconds(place)
                unit_seconds = len(part) * charge.quantity
                parts = parts_per_second(charge) * len(part)
                yield ExportRow(
                    kind=RowKind.COMMITMENT,
                    start=seconds.start,
                    stop=seconds.stop,
                    shown=in_currency(parts, self._statement.exchange),
                    text=f"Commitment {commitment}" + (", paid upfront" if paid else ""),
                    parts=parts,
                    sku_id=charge.sku_id,
                    unit=charge.unit,
                    price=charge.price,
                    seconds=len(part),
                    unit_seconds=unit_seconds,
                    unused=0 if paid else unit_seconds - self._used.get((commitment, place), 0),
                    commitment=commitment,
                )

    def _rest(self) -> Iterator[ExportRow]:
        for credit, parts in self._statement.credits:
            amount = in_currency(parts, self._statement.exchange)
            row = self._whole(RowKind.CREDIT, amount, f"Credit {credit}")
            yield dataclasses.replace(row, parts=parts, credit=credit)
        if self._statement.tax:
            yield self._whole(RowKind.TAX, self._minor(self._statement.tax), "Tax")
        for found in self._statement.adjustments:
            yield from self._correction(found)

    def _correction(self, found: Adjustment) -> Iterator[ExportRow]:
        """A row for each item, and one for what they miss of the amount. An item has no single day;
        its labels are the last ones of the month that is corrected."""
        month, left = found.corrects_month, self._minor(found.minor)
        zone = self._statement.time_zone
        for item in found.items:
            shown = in_currency(item.amount.parts, found.exchange)
            left -= shown
            facts = self._source.resources.get(item.resource_id)
            row = self._whole(RowKind.ADJUSTMENT, shown, f"Correction of {month}, {item.line_id}")
            yield dataclasses.replace(
                row,
                parts=item.amount.parts,
                resource=facts,
                labels={}
                if facts is None
                else labels_at(facts.node, months.seconds_of(month, zone).stop - 1),
                seconds=item.seconds,
                unit_seconds=item.unit_seconds,
                unit=item.unit,
                corrects=month,
                corrects_line=item.line_id,
            )
        if left or not found.items:
            text = f"Correction of {month}" + (", tax, credits and rounding" if found.items else "")
            yield dataclasses.replace(self._whole(RowKind.ADJUSTMENT, left, text), corrects=month)

    def _whole(self, kind: RowKind, amount: int, text: str) -> ExportRow:
        """A row of the whole month."""
        return ExportRow(
            kind, self._statement.seconds.start, self._statement.seconds.stop, amount, text
        )

    def _minor(self, minor: int) -> int:
        return minor * int(10 ** (DECIMALS - self._statement.decimals))


def _by_owner(seconds: range, owned: Sequence[Owned]) -> Iterator[tuple[range, str]]:
    """Parts of a range with the job that had them, or idle."""
    at = seconds.start
    for owner in owned[bisect.bisect_right(owned, at, key=lambda o: o.seconds.stop) :]:
        start, stop = max(at, owner.seconds.start), min(seconds.stop, owner.seconds.stop)
        if start >= seconds.stop:
            break
        if at < start:
            yield range(at, start), IDLE
        yield range(start, stop), owner.job_id
        at = stop
    if at < seconds.stop:
        yield range(at, seconds.stop), IDLE
