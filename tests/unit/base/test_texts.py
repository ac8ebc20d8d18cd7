"""Money and lengths of time as people read them: the one way of pages, commands and the demo."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from podyard.base.durations import duration_for_people
from podyard.base.money import Amount, money_text, price_text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("14407.541234", "$14,407.54"), ("1", "$1.00"), ("0.999999", "$1.00"), ("0", "$0.00"),
        ("0.5", "$0.50"),
        ("0.0341", "$0.0341"), ("0.00375", "$0.0038"), ("0.00000123456", "$0.0000012"),
        ("-3.456", "-$3.46"),
        ("-0.00375", "-$0.0038"), (Fraction(1, 3), "$0.3333"),
        (Decimal("1234567.895"), "$1,234,567.90"),
        (Amount.of_hourly(4_500_000_000, 3600), "$4.50"),
    ],
)  # fmt: skip
def test_money(amount: Amount | Fraction | Decimal | str, text: str) -> None:
    assert money_text(amount) == text


@pytest.mark.parametrize(
    ("nanos", "text"),
    [(4_500_000_000, "$4.50"), (1_350_000_000, "$1.35"), (4_906_000, "$0.004906"), (0, "$0.00")],
)
def test_prices_are_exact(nanos: int, text: str) -> None:
    assert price_text(nanos) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.00035, "350 µs"), (0.25, "250 ms"), (4.2, "4.2 s"), (59.96, "1 min"),
        (60, "1 min"),
        (200, "3 min 20 s"), (7500, "2 h 5 min"), (86400, "1 d"), (18.75 * 86400, "18 d 18 h"),
        (-90, "-1 min 30 s"),
        (1e8, "1,157 d 9 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration_for_people(seconds) == text
