"""What drawn histories choose from: fleets with different timings, and the rows of the shipped rate card."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import load_fleet
from podyard.pricing import cards
from podyard.pricing.cards import load_rate_card
from podyard.pricing.sku import RateCard

FLEET = """
zones:
  us-central1-a: {{v2: {{shape: 16x16}}, v5e: {{shape: 16x16}}}}
timings: {{create_seconds: {0}, start_seconds: {0}, stop_seconds: {1}, delete_seconds: {1}}}
"""
TIMINGS = ((0, 0), (0.25, 0.125), (10, 5))
# What a node can be: type, and the SKU of its generation's price on demand.
KINDS = {"v2-8": "tpu-v2-device", "v2-32": "tpu-v2-32", "v5litepod-8": "tpu-v5e-chip", "v5litepod-1": "tpu-v5e-chip"}
SHIPPED = (Path(cards.__file__).parent / "rate_cards" / f"{cards.SHIPPED}.yaml").read_text(encoding="utf-8")
BEGIN = "2015-01-01T00:00:00Z"
HOSTS_FROM = (None, "2020-01-01T00:00:00Z", "2026-03-20T06:30:00Z", "2026-11-05T00:00:01Z")


@functools.cache
def fleet_of(timings: tuple[float, float]) -> Fleet:
    return load_fleet(FLEET.format(*timings))


@functools.cache
def base_card(hosts_from: str | None) -> RateCard:
    """The rows of the shipped card that these histories can use: closing keeps them all."""
    head = "" if hosts_from is None else f'hosts_from: "{hosts_from}"\n'
    card = load_rate_card(head + SHIPPED)
    kept = ("v2-8", "v2-32")
    skus = {
        key: sku
        for key, sku in card.skus.items()
        if sku.region == "us-central1" and (sku.accelerator_type in kept or sku.generation in ("v5e", "host"))
    }
    return dataclasses.replace(card, skus=skus)
