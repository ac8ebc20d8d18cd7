"""A price that is announced for later: every surface shows the one that holds today."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.base.clock import PlatformTime
from podyard.pricing import current_card
from podyard.web.billing import terms as billing_terms
from tests.yard import Yard, open_yard

CARD = """
sources: {s: x}
skus:
  v2-8/us-central1/on-demand:
    {type: v2-8, generation: v2, region: us-central1, usage: on-demand, unit: device_hour,
     prices: [{from: "2026-01-01T00:00:00Z", usd: "4.5", source: s},
              {from: "2030-01-01T00:00:00Z", usd: "9", source: s}]}
"""
NOW = PlatformTime.from_rfc3339("2026-03-01T00:00:00Z")


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    card = tmp_path / "card.yaml"
    card.write_text(CARD)
    monkeypatch.setenv("PODYARD_RATE_CARD", str(card))
    current_card.default_rate_card.cache_clear()
    with open_yard(tmp_path) as found:
        yield found
    current_card.default_rate_card.cache_clear()


def test_a_price_that_is_announced_is_not_todays(yard: Yard) -> None:
    yard.create("n1")
    (usage,) = yard.usage()["nodes"]
    assert float(usage["pricePerHour"]) == 4.5
    (only,) = current_card.default_rate_card().skus.values()
    shown = billing_terms._sku(only, NOW)
    assert shown["price"] == "$4.50"
    assert [later["price"] for later in shown["announced"]] == ["$9.00"]
    assert shown["history"] == []
