"""What jobs take of one's own machines: the card, its errors, and exact amounts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.domain.replica import AttemptUse
from podyard.pricing.cards import read_machine_card
from podyard.pricing.current_card import machine_card
from podyard.pricing.machines import MachineCost, cost_of
from podyard.settings import from_environment

CARD = """
sources: {bill: "our electricity bill"}
cpu_hour:
  - {from: "2026-01-01T00:00:00Z", usd: "0.036", source: bill}
  - {from: "2026-02-01T00:00:00Z", usd: "0.072", source: bill}
gib_hour:
  - {from: "2026-01-01T00:00:00Z", usd: "0.0036", source: bill}
"""
GIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "machines.yaml"
    found.write_text(CARD, encoding="utf-8")
    return found


def used(started: str, cpu_micros: int, kib_seconds: int) -> AttemptUse:
    return AttemptUse("j", PlatformTime.from_rfc3339(started), cpu_micros, kib_seconds)


def test_each_attempt_is_whole_seconds_at_the_price_of_its_start(path: Path) -> None:
    card = read_machine_card(path)
    found = cost_of(
        card, [used("2026-01-31T23:59:59Z", 9_000_001, 3 * GIB), used("2026-02-01T00:00:00Z", 1, 1)]
    )
    assert (found.cpu_seconds, found.gib_seconds) == (11, 4)
    # 10 x 0.00001 + 3 x 0.000001, and 1 x 0.00002 + 1 x 0.000001
    assert found.amount is not None and found.amount.fraction() == Fraction("0.000124")


def test_an_attempt_before_the_first_price_has_none(path: Path) -> None:
    card = read_machine_card(path)
    assert cost_of(card, [used("2025-12-31T23:59:59Z", 1, GIB)]) == MachineCost(1, 1, None)
    assert cost_of(card, []).amount is not None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (CARD, "- 1", "must have currency, sources, cpu_hour, gib_hour"),
        ("sources", "colour: red\nsources", "unknown key 'colour'"),
        ("sources", "currency: EUR\nsources", "currency 'EUR': prices are in USD"),
        ("gib_hour:", "other:", "unknown key 'other'"),
        ('usd: "0.036"', "usd: 0.036", "cpu_hour, price 1: usd 0.036 is a number to YAML"),
        ('usd: "0.036"', 'usd: "-1"', "a price is not negative"),
        ("2026-02-01", "2026-01-01", "overlap: no two from the same second"),
        ("source: bill", "source: guess", "source 'guess' is not one of bill"),
        ("gib_hour:", "cpu_hour:", "cpu_hour"),
        (CARD, "[", "not YAML"),
    ],
)
def test_a_wrong_card_is_refused_with_its_row(path: Path, old: str, new: str, told: str) -> None:
    path.write_text(CARD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PodyardError) as raised:
        read_machine_card(path)
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert f"machine card {path}" in raised.value.message and told in raised.value.message


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    machine_card.cache_clear()
    yield monkeypatch
    machine_card.cache_clear()


def test_the_environment_names_the_card(path: Path, environment: pytest.MonkeyPatch) -> None:
    assert machine_card() is None
    machine_card.cache_clear()
    environment.setenv("PODYARD_MACHINE_CARD", str(path))
    assert machine_card() is not None
    assert from_environment().environment()["PODYARD_MACHINE_CARD"] == str(path)
    machine_card.cache_clear()
    environment.setenv("PODYARD_MACHINE_CARD", str(path / "none"))
    with pytest.raises(PodyardError, match="is not a file that can be read"):
        machine_card()
