"""Grouping of charges by time: nothing is lost or counted twice, whatever the calendar does."""

from __future__ import annotations

import itertools
from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.domain import months
from podyard.domain.invoice import JobSpan
from podyard.domain.usage import PriceUnit, PriceVersion, UsageRecord
from podyard.pricing import explore
from podyard.pricing.amounts import total
from podyard.pricing.explore import CostBucket

LA = "America/Los_Angeles"
PRICE = PriceVersion("p", PlatformTime(0), 1_350_000_007, "test")


def charge(start: int, seconds: int, resource: str = "r", quantity: int = 1) -> UsageRecord:
    return UsageRecord(resource, "sku", PriceUnit.DEVICE_HOUR, start, seconds, quantity, PRICE)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        (LA, date(2026, 3, 8), 23),
        (LA, date(2026, 11, 1), 25),
        (LA, date(2026, 7, 4), 24),
        ("Australia/Lord_Howe", date(2026, 4, 5), 25),  # 24.5 hours: the last one is half
        ("Asia/Kolkata", date(2026, 3, 8), 24),
        ("Africa/Cairo", date(2026, 4, 24), 23),  # it begins at one o'clock
    ],
)
def test_a_day_has_the_hours_that_the_clocks_show(zone: str, day: date, hours: int) -> None:
    found = explore.edges(CostBucket.HOUR, day, day, zone)
    assert len(found) - 1 == hours
    assert [found[0], found[-1]] == explore.edges(CostBucket.DAY, day, day, zone)
    labels = [explore.label(second, CostBucket.HOUR, zone) for second in found[:-1]]
    assert len(set(labels)) == hours, "no two hours have one name"


def test_a_day_that_a_zone_skips_has_no_bar() -> None:
    """Samoa went from 29 to 31 December 2011."""
    found = explore.edges(CostBucket.DAY, date(2011, 12, 28), date(2012, 1, 1), "Pacific/Apia")
    assert [explore.label(second, CostBucket.DAY, "Pacific/Apia") for second in found[:-1]] == [
        "2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "zone", ["UTC", LA, "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Asia/Kathmandu"]
)
def test_days_and_hours_end_where_months_do(zone: str) -> None:
    for month in (f"2026-{number:02d}" for number in range(1, 13)):
        seconds = months.seconds_of(month, zone)
        first, last = (
            explore.local(seconds.start, zone).date(),
            explore.local(seconds.stop - 1, zone).date(),
        )
        for bucket in (CostBucket.DAY, CostBucket.MONTH):
            found = explore.edges(bucket, first, last, zone)
            assert (found[0], found[-1]) == (seconds.start, seconds.stop)
            assert all(a < b for a, b in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("bucket", "first", "last"),
    [
        (CostBucket.HOUR, date(2026, 1, 1), date(2026, 1, 6)),
        (CostBucket.DAY, date(2026, 1, 1), date(2026, 12, 31)),
        (CostBucket.MONTH, date(1970, 1, 1), date(2026, 1, 1)),
        (CostBucket.DAY, date(2026, 1, 2), date(2026, 1, 1)),
    ],
)
def test_too_many_bars_and_days_in_the_wrong_order_are_refused(
    bucket: CostBucket, first: date, last: date
) -> None:
    with pytest.raises(PodyardError):
        explore.edges(bucket, first, last, "UTC")


START = explore.day_start(date(2026, 3, 1), LA)
records = st.lists(
    st.builds(
        charge,
        st.integers(START, START + 40 * 86_400),
        st.integers(1, 900_000),
        st.sampled_from("abcd"),
        st.integers(0, 5),
    ),
    max_size=8,
)


@given(records)
def test_every_second_is_in_exactly_one_cell(found: list[UsageRecord]) -> None:
    named = [(record.resource_id, record) for record in found]
    for bucket, last in (
        (CostBucket.DAY, date(2026, 5, 30)),
        (CostBucket.MONTH, date(2026, 5, 30)),
    ):
        spans = explore.edges(bucket, date(2026, 3, 1), last, LA)
        cells = explore.cells(named, spans)
        assert sum(cells.totals.values()) == sum(cells.sums) == total(found).parts
        split = explore.cells(named[::2], spans).plus(explore.cells(named[1::2], spans))
        assert (split.groups, split.totals, split.sums) == (cells.groups, cells.totals, cells.sums)


@given(records, st.lists(st.tuples(st.integers(0, 4_000_000), st.integers(0, 90_000)), max_size=5))
def test_jobs_and_idle_time_are_all_of_a_charge(
    found: list[UsageRecord], runs: list[tuple[int, int]]
) -> None:
    spans = [
        JobSpan(f"j{i}", "abcd"[i % 4], _at(START + start), _at(START + start + length))
        for i, (start, length) in enumerate(runs)
    ]
    owners = explore.owners(spans, _at(START + 10**7))
    for record in found:
        parts = [part for _, part in explore.by_job(record, owners.get(record.resource_id, ()))]
        assert total(parts) == total([record])
        edges = [(part.start_second, part.start_second + part.seconds) for part in parts]
        assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))


def _at(second: int) -> PlatformTime:
    return PlatformTime(second * 10**9)


@given(
    st.lists(st.one_of(st.integers(-(10**6), 10**6), st.fractions(-1000, 1000)), max_size=20),
    st.integers(1, 1000),
)
def test_shown_cells_add_up_and_are_off_by_less_than_a_unit(
    values: list[int | Fraction], unit: int
) -> None:
    cells = explore.apportion(values, unit)
    assert sum(cells) == (explore.round_half(sum(values), unit) if values else 0)
    assert all(abs(cell * unit - value) < unit for cell, value in zip(cells, values, strict=True))


def test_of_equal_losses_the_first_gets_the_cent() -> None:
    assert explore.apportion([Fraction(1, 3)] * 3, 1) == [1, 0, 0]
    assert (
        explore.round_half(-1, 2) == -1
        and explore.round_half(1, 2) == 1
        and explore.round_half(-1, 3) == 0
    )


def test_credits_pay_the_same_share_of_every_charge_and_others_are_what_is_missing() -> None:
    spans = explore.edges(CostBucket.DAY, date(2026, 3, 1), date(2026, 3, 2), "UTC")
    cells = explore.cells(
        ((name, charge(spans[0] + i, 90_000, name)) for i, name in enumerate("abcde")), spans
    )
    paid = {"2026-03": Fraction(1, 3)}
    rows = explore.rows(cells, cells, spans, paid, "UTC", cells.totals)
    whole = explore.whole(cells, cells, spans, paid, "UTC")
    assert whole.net == sum(row.net for row in rows) == Fraction(2, 3) * whole.gross
    assert whole.credits == -whole.gross / Fraction(3)
    folded = explore.fold(rows, whole, 2, "others")
    assert [row.name for row in folded] == ["a", "b", "others (3)"]
    for measure in ("gross", "credits", "net"):
        columns = [
            sum(column) for column in zip(*(row.by_span(measure) for row in folded), strict=True)
        ]
        assert columns == list(whole.by_span(measure)) and sum(columns) == getattr(whole, measure)


@pytest.mark.slow
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abcd"),
            st.tuples(st.fractions(0, 1000), st.fractions(0, 1000)),
            min_size=1,
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 50),
)
def test_each_invoice_month_adds_up_to_its_own_total(
    found: list[dict[str, tuple[Fraction, Fraction]]], unit: int
) -> None:
    """Each month is rounded by itself: the sum of rounded months may be another than the rounded
    sum."""
    months_found = [
        explore.Invoiced(
            f"2026-{index + 1:02d}",
            unit,
            groups,
            # whatever the invoice says
            explore.round_half(sum(after for _, after in groups.values()), unit) + index,
            [("(tax)", index), ("(correction of 2025-12)", -index)],
        )
        for index, groups in enumerate(found)
    ]
    rows = explore.book(months_found)
    assert [row.name for row in rows[-2:]] == ["(tax)", "(correction of 2025-12)"]
    for index, month in enumerate(months_found):
        assert sum(row.net[index] for row in rows) == month.subtotal
        assert sum(row.net[index] for row in rows[:-2]) == month.subtotal
    for row in rows:
        assert list(row.net) == [a + b for a, b in zip(row.gross, row.credits, strict=True)]
    grosses = [sum(row.gross) for row in rows[:-2]]
    assert grosses == sorted(grosses, reverse=True)


def test_without_an_invoice_a_month_has_nothing() -> None:
    (row,) = explore.book(
        [
            explore.Invoiced("2026-01", 1, {}, 0, ()),
            explore.Invoiced("2026-02", 1, {"a": (3, 2)}, 2, ()),
        ]
    )
    assert (row.gross, row.credits, row.net) == ([0, 3], [0, -1], [0, 2])
    assert explore.book([]) == []
