"""What is billed by its size: whole GiB by the second, and what each UTC day leaves over in its
last second."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.domain.usage import DELETED, EXISTS, GIB, BilledKind, PriceUnit, UsageEvent
from podyard.pricing.amounts import total
from podyard.pricing.bill import Resource, use_of, use_until
from podyard.pricing.meter import DAY_SECONDS, SIZED
from podyard.pricing.sku import make_sku, make_version

DAY = 20_000 * DAY_SECONDS  # a POSIX second at which a UTC day begins
SKU = make_sku(
    "object-standard/us/on-demand",
    PriceUnit.GIB_MONTH,
    [
        make_version("v", "1970-01-01T00:00:00Z", "0.026", "s"),
        make_version("v", "2024-10-05T00:00:00Z", "0.03", "s"),
    ],
)
BUCKET = Resource("b", BilledKind.BUCKET, SKU, 1, SIZED)


def event(number: int, nanos: int, size: int, state: str = EXISTS) -> UsageEvent:
    return UsageEvent(
        f"e{number}", "b", number, state, PlatformTime(DAY * NANOS_PER_SECOND + nanos), size
    )


def at(nanos: int) -> PlatformTime:
    return PlatformTime(DAY * NANOS_PER_SECOND + nanos)


def units(events: Sequence[UsageEvent], as_of: PlatformTime) -> list[tuple[int, int, int]]:
    """(first second of the day on, seconds, GiB)."""
    found = use_of(BUCKET, events, as_of).metered.parts(1)
    return [(seconds.start - DAY, len(seconds), gib) for seconds, gib in found]


HOUR = 3600 * NANOS_PER_SECOND


def test_half_a_gib_for_a_day_is_half_a_day_of_gib_seconds_in_its_last_second() -> None:
    events = [event(1, 0, GIB // 2)]
    assert units(events, at(23 * HOUR)) == []
    assert units(events, at(24 * HOUR - 1)) == []
    assert units(events, at(24 * HOUR)) == [(86_399, 1, 43_200)]
    cost = total(use_of(BUCKET, events, at(24 * HOUR)).rated.records)
    # nanos of a GiB-month, each of 2,628,000 parts, by the second
    assert cost == Amount(26_000_000 * 43_200)


def test_whole_gib_count_at_once_and_the_rest_when_the_bucket_goes() -> None:
    events = [event(1, 0, 2 * GIB + GIB // 4), event(2, HOUR, 0, DELETED)]
    assert units(events[:1], at(HOUR)) == [(0, 3600, 2)]
    assert units(events, at(HOUR)) == [(0, 3599, 2), (3599, 1, 902)]
    assert units(events, at(100 * HOUR)) == [(0, 3599, 2), (3599, 1, 902)]


def test_a_byte_is_rounded_up_to_one_gib_second_a_day() -> None:
    assert units([event(1, 0, 1)], at(48 * HOUR)) == [(86_399, 1, 1), (172_799, 1, 1)]


def test_a_second_has_the_largest_size_in_it() -> None:
    events = [event(1, 0, GIB), event(2, 1_200_000_000, 5 * GIB), event(3, 1_300_000_000, 2 * GIB)]
    assert units(events, at(3 * NANOS_PER_SECOND)) == [(0, 1, 1), (1, 1, 5), (2, 1, 2)]
    shrunk = [event(1, 0, 5 * GIB), event(2, 1_200_000_000, 2 * GIB)]
    assert units(shrunk, at(3 * NANOS_PER_SECOND)) == [(0, 2, 5), (2, 1, 2)]


def test_a_size_of_no_time_costs_nothing() -> None:
    assert units([event(1, 5, 9 * GIB), event(2, 5, 0)], at(NANOS_PER_SECOND)) == []


def test_without_a_price_what_would_be_charged_is_held() -> None:
    held = use_of(
        Resource("b", BilledKind.BUCKET, None, 1, SIZED, "no price"),
        [event(1, 0, GIB // 2)],
        at(24 * HOUR),
    ).rated
    assert (held.records, [(one.start_second, one.seconds) for one in held.suspense]) == (
        (),
        [(DAY + 86_399, 1)],
    )


SIZES = st.sampled_from([0, 1, GIB // 3, GIB - 1, GIB, GIB + 7, 3 * GIB, 40 * GIB + 12_345])
GAPS = st.one_of(
    st.integers(0, 3 * NANOS_PER_SECOND),
    st.integers(0, 6).map(lambda hours: hours * 6 * HOUR),
    st.integers(0, 40 * HOUR),
)
HISTORIES = st.lists(st.tuples(GAPS, SIZES), min_size=1, max_size=7)


def drawn(history: Sequence[tuple[int, int]], ends: bool) -> list[UsageEvent]:
    found, nanos = [], 0
    for number, (gap, size) in enumerate(history, 1):
        nanos += gap
        found.append(event(number, nanos, size))
    if ends:
        found.append(event(len(found) + 1, nanos + history[0][0], 0, DELETED))
    return found


def slow(events: Sequence[UsageEvent], as_of: PlatformTime) -> Counter[int]:
    """GiB-seconds by POSIX second, with fractions. Seconds in which nothing changes are looked at
    together."""
    known = [one for one in events if one.at <= as_of]
    ends = [*(one.at.nanos for one in known[1:]), as_of.nanos]
    bounds = {edge for one, end in zip(known, ends, strict=True) for edge in (one.at.nanos, end)}
    cuts = {
        second + more
        for nanos in bounds
        for second in [nanos // NANOS_PER_SECOND]
        for more in (0, 1)
    }
    cuts |= set(range(min(cuts) // DAY_SECONDS * DAY_SECONDS, max(cuts) + DAY_SECONDS, DAY_SECONDS))
    cuts |= {cut - 1 for cut in cuts}
    edges = sorted(cuts)
    found: Counter[int] = Counter()
    rests: dict[int, Fraction] = {}
    last: dict[int, int] = {}
    for start, stop in itertools.pairwise(edges):
        begin, end = start * NANOS_PER_SECOND, stop * NANOS_PER_SECOND
        sizes = [
            one.bytes
            for one, until in zip(known, ends, strict=True)
            if one.state == EXISTS and max(begin, one.at.nanos) < min(end, until)
        ]
        if not sizes:
            continue
        size = Fraction(max(sizes), GIB)
        found[start] += int(size) * (stop - start)
        day = start // DAY_SECONDS
        rests[day] = rests.get(day, Fraction(0)) + (size - int(size)) * (stop - start)
        last[day] = stop - 1
    is_open = known and known[-1].state == EXISTS
    for day, rest in rests.items():
        if not is_open or as_of.nanos >= (day + 1) * DAY_SECONDS * NANOS_PER_SECOND:
            found[last[day]] += -int(-rest // 1)
    return +found


def by_second(
    events: Sequence[UsageEvent], as_of: PlatformTime, edges: Sequence[int]
) -> Counter[int]:
    found: Counter[int] = Counter()
    for seconds, gib in use_of(BUCKET, events, as_of).metered.parts(1):
        cuts = [
            seconds.start,
            *(edge for edge in edges if seconds.start < edge < seconds.stop),
            seconds.stop,
        ]
        for start, stop in itertools.pairwise(cuts):
            found[start] += gib * (stop - start)
    return +found


@given(HISTORIES, st.booleans(), st.integers(1, 60 * HOUR))
def test_it_is_what_a_slow_meter_counts(
    history: list[tuple[int, int]], ends: bool, more: int
) -> None:
    events = drawn(history, ends)
    as_of = events[-1].at.plus_nanos(more)
    wanted = slow(events, as_of)
    assert by_second(events, as_of, sorted(wanted)) == wanted


@given(HISTORIES, st.booleans(), st.integers(1, 60 * HOUR), st.integers(0, 60 * HOUR))
def test_what_was_counted_before_stays(
    history: list[tuple[int, int]], ends: bool, more: int, later: int
) -> None:
    """Of seconds before a moment the same comes out whenever it is computed; also when a process
    draws a bill out."""
    events = drawn(history, ends)
    early = events[-1].at.plus_nanos(more)
    late = early.plus_nanos(later)
    first, second = use_of(BUCKET, events, early), use_of(BUCKET, events, late)
    until = early.nanos // NANOS_PER_SECOND
    assert list(first.metered.within([range(until)], late).parts(1)) == list(
        second.metered.within([range(until)], late).parts(1)
    )
    if first.metered.open_since is not None:
        drawn_out = use_until(BUCKET, first, late)
        assert total(drawn_out.rated.records) == total(second.rated.records)
        assert list(drawn_out.metered.parts(1)) == list(second.metered.parts(1))


@pytest.mark.parametrize("size", [GIB // 3, 5 * GIB + 1])
def test_a_price_changes_between_two_seconds(size: int) -> None:
    change = PlatformTime.from_rfc3339("2024-10-05T00:00:00Z").nanos
    events = [event(1, change - DAY * NANOS_PER_SECOND - 24 * HOUR, size)]
    records = use_of(BUCKET, events, PlatformTime(change + 24 * HOUR)).rated.records
    sums = {
        nanos: sum(r.unit_seconds for r in records if r.price.nanos == nanos)
        for nanos in (26_000_000, 30_000_000)
    }
    assert sums == dict.fromkeys(sums, -(-size * DAY_SECONDS // GIB))
