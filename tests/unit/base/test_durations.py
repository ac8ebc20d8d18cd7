"""Lengths of time as people and as Google's API write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base.durations import duration_text, parse_duration

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5_400),
        ("2d", 172_800),
        ("1d2h3m4s", 93_784),
        ("0.5h", 1_800),
        ("0s", 0),
    ],
)
def test_units_add_up(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds * SECOND


def test_a_second_has_nine_decimals() -> None:
    assert parse_duration("0.000000001s") == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "1",
        "1 h",
        "-1s",
        "1m2h",
        "1e3s",
        "nan",
        "1.s",
        "0.0000000001s",
        "9" * 80 + "s",
        "200000d",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration(text)


@given(st.integers(0, 2**62))
def test_what_is_written_is_read_again(nanos: int) -> None:
    assert parse_duration(duration_text(nanos)) == nanos
