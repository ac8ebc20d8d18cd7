"""Invoice months in time zones: R8."""

import itertools
import zoneinfo

import pytest

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.domain.months import check_zone, following, month_of, seconds_of, split

HOUR = 3_600


def second(text: str) -> int:
    return PlatformTime.from_rfc3339(text).nanos // NANOS_PER_SECOND


@pytest.mark.parametrize(
    ("month", "zone", "hours"),
    [
        ("2026-03", "UTC", 744),
        ("2026-03", "America/Los_Angeles", 743),
        ("2026-11", "America/Los_Angeles", 721),
        ("2028-02", "UTC", 696),
        ("2026-03", "Europe/Berlin", 743),
        ("2026-04", "Australia/Lord_Howe", 720.5),  # clocks go back by half an hour
        ("2011-12", "Pacific/Apia", 720),  # the 30th was skipped
        ("1844-12", "Asia/Manila", 720),  # the 31st was skipped
        ("2016-12", "UTC", 744),  # its leap second does not count
    ],
)
def test_hours_of_a_month(month: str, zone: str, hours: float) -> None:
    assert len(seconds_of(month, zone)) == hours * HOUR


@pytest.mark.parametrize(
    ("moment", "zone", "month"),
    [
        ("2026-03-31T18:29:59Z", "Asia/Kolkata", "2026-03"),
        ("2026-03-31T18:30:00Z", "Asia/Kolkata", "2026-04"),
        ("2026-04-01T06:59:59Z", "America/Los_Angeles", "2026-03"),
        ("2026-04-01T07:00:00Z", "America/Los_Angeles", "2026-04"),
        ("2026-12-31T23:59:59Z", "UTC", "2026-12"),
        ("1969-12-31T23:59:59Z", "UTC", "1969-12"),
    ],
)
def test_the_month_of_a_second(moment: str, zone: str, month: str) -> None:
    assert month_of(second(moment), zone) == month


def test_a_month_whose_first_midnight_was_skipped_begins_with_the_jump() -> None:
    # Cairo's clocks went from 0:00 to 1:00 on 1 August 2014.
    july, august = seconds_of("2014-07", "Africa/Cairo"), seconds_of("2014-08", "Africa/Cairo")
    assert july.stop == august.start == second("2014-08-01T01:00:00+03:00")
    assert len(august) == (31 * 24 - 1) * HOUR
    assert [month_of(august.start - 1, "Africa/Cairo"), month_of(august.start, "Africa/Cairo")] == [
        "2014-07",
        "2014-08",
    ]


def test_where_clocks_go_back_over_midnight_the_new_month_goes_on() -> None:
    # In St John's clocks went back from 0:01 on 1 November 2009 to 23:01 on 31 October.
    start = seconds_of("2009-11", "America/St_Johns").start
    assert start == second("2009-11-01T00:00:00-02:30")
    moments = [start - 1, start, start + 60, start + 60 + HOUR - 1, start + 2 * HOUR]
    assert [month_of(moment, "America/St_Johns") for moment in moments] == [
        "2009-10",
        *["2009-11"] * 4,
    ]
    assert list(split(range(start - 5, start + HOUR), "America/St_Johns")) == [
        ("2009-10", range(start - 5, start)),
        ("2009-11", range(start, start + HOUR)),
    ]


def test_months_of_every_zone_follow_one_another() -> None:
    months = [
        f"{year}-{month:02d}"
        for year in (1925, 1945, 1980, 1999, 2011, 2026)
        for month in range(1, 13)
    ]
    zones = sorted(zone for zone in zoneinfo.available_timezones() if "/" in zone)
    assert len(zones) > 400
    for zone in zones[::4]:
        for one, two in itertools.pairwise(months):
            seconds = seconds_of(one, zone)
            assert 27 * 24 * HOUR < len(seconds) < 32 * 24 * HOUR
            assert (month_of(seconds.start, zone), month_of(seconds.stop - 1, zone)) == (one, one)
            if following(one) == two:
                assert seconds.stop == seconds_of(two, zone).start


def test_a_range_is_split_by_month() -> None:
    start, stop = second("2026-02-28T23:59:58Z"), second("2026-04-01T00:00:01Z")
    parts = list(split(range(start, stop), "UTC"))
    assert [(month, len(part)) for month, part in parts] == [
        ("2026-02", 2),
        ("2026-03", 744 * HOUR),
        ("2026-04", 1),
    ]
    assert list(split(range(5, 5), "UTC")) == []


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "", "America", "../etc/passwd", "/etc/passwd", "a\0b"]
)
def test_an_unknown_zone_is_named(zone: str) -> None:
    with pytest.raises(PodyardError) as caught:
        check_zone(zone)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert f"{zone!r} is not an IANA time zone" in caught.value.message


@pytest.mark.parametrize(
    "month", ["2026-3", "2026-13", "2026-00", "0000-01", "9999-12", "March", "2026-03-01"]
)
def test_what_is_no_month_is_refused(month: str) -> None:
    with pytest.raises(PodyardError, match="is not a month: use YYYY-MM"):
        seconds_of(month, "UTC")
