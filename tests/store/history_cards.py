"""What drawn histories choose from: fleets with different timings, accounts, and the rows of the
shipped rate card."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from podyard.base.clock import ManualClock, PlatformTime, RealTime
from podyard.domain import months
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import load_fleet
from podyard.pricing import cards
from podyard.pricing.cards import load_rate_card
from podyard.pricing.sku import RateCard
from podyard.testing.server import write_empty_database

FLEET = """
zones:
  us-central1-a: {{v2: {{shape: 16x16}}, v5e: {{shape: 16x16}}}}
timings: {{create_seconds: {0}, start_seconds: {0}, stop_seconds: {1}, delete_seconds: {1}}}
"""
TIMINGS = ((0, 0), (0.25, 0.125), (10, 5))
# What a node can be: type, and the SKU of its generation's price on demand.
KINDS = {
    "v2-8": "tpu-v2-device",
    "v2-32": "tpu-v2-32",
    "v5litepod-8": "tpu-v5e-chip",
    "v5litepod-1": "tpu-v5e-chip",
}
SHIPPED = (Path(cards.__file__).parent / "rate_cards" / f"{cards.SHIPPED}.yaml").read_text(
    encoding="utf-8"
)
# What a bucket or disk can be: the SKU of what it costs. One of each has no price at first, or
# never.
STORES = {
    "US/STANDARD": "object-standard/us/on-demand",
    "US-CENTRAL1/NEARLINE": "object-nearline/us-central1/on-demand",
    "EUROPE-NORTH1/STANDARD": "",
    "pd-ssd": "disk-pd-ssd/us-central1/on-demand",
    "pd-standard": "disk-pd-standard/us-central1/on-demand",
    "pd-balanced": "",
}
# SKUs of these, and then the class and location as those of objects have them
OPERATIONS = "operation-class-a-"
STORED = {*STORES.values(), *(sku_id.removeprefix("object-") for sku_id in STORES.values())}
BEGIN = "2015-01-01T00:00:00Z"
HOSTS_FROM = (None, "2020-01-01T00:00:00Z", "2026-03-20T06:30:00Z", "2026-11-05T00:00:01Z")

ZONES = (
    "UTC",
    "America/Los_Angeles",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
)
CURRENCIES = (("USD", 2), ("EUR", 2), ("JPY", 0), ("KWD", 3))
OTHER = "other-project"


class SettableClock(ManualClock):
    """A machine clock that goes where it is told to, back too."""

    def set(self, nanos: int) -> None:
        self._now = RealTime(nanos)


def stored_skus(kinds: Iterable[str]) -> list[str]:
    """Return what buckets and disks of these kinds, and operations of class A on them, are sold
    by."""
    stored = sorted({STORES[kind] for kind in kinds} - {""})
    return [
        *stored,
        *(
            sku_id.replace("object-", OPERATIONS)
            for sku_id in stored
            if sku_id.startswith("object-")
        ),
    ]


def nanos_of(text: str) -> int:
    return PlatformTime.from_rfc3339(text).nanos


def text_of(nanos: int) -> str:
    return PlatformTime(nanos).rfc3339()


def draw_account(chance: Random, zone: str, second: int, last: str) -> dict[str, Any]:
    """Return what an account is set to, with rates of all months from that second on until the
    month after `last`."""
    currency, decimals = chance.choice(CURRENCIES)
    changes: dict[str, Any] = {"currency": currency, "decimals": decimals, "time_zone": zone}
    changes["tax"] = chance.choice(["0", "0", "0.1", "0.081"])
    changes["grace_hours"] = chance.choice([0, 24, 72])
    if currency != "USD":
        rates = {"EUR": "0.9234", "JPY": "151.37", "KWD": "0.307123"}
        named = [months.month_of(second, zone)]
        while named[-1] <= last:
            named.append(months.following(named[-1]))
        changes["rates"] = {
            month: rates[currency] + str(chance.randrange(1, 10)) for month in named
        }
    return changes


@functools.cache
def fleet_of(timings: tuple[float, float]) -> Fleet:
    return load_fleet(FLEET.format(*timings))


@functools.cache
def base_card(
    hosts_from: str | None,
    disks_from: str | None,
    objects_from: str | None,
    operations_from: str | None,
) -> RateCard:
    """The rows of the shipped card that these histories can use: closing keeps them all."""
    begins = {"hosts_from": hosts_from, "disks_from": disks_from, "objects_from": objects_from}
    begins["operations_from"] = operations_from
    head = "".join(
        f'{switch}: "{start}"\n' for switch, start in begins.items() if start is not None
    )
    card = load_rate_card(head + SHIPPED)
    kept = ("v2-8", "v2-32")
    skus = {
        sku_id: sku
        for sku_id, sku in card.skus.items()
        if sku_id.removeprefix(OPERATIONS) in STORED
        or (
            sku.region == "us-central1"
            and (sku.accelerator_type in kept or sku.generation in ("v5e", "host"))
        )
    }
    return dataclasses.replace(card, skus=skus)


@contextlib.contextmanager
def memory_database() -> Iterator[str]:
    """The URL of an empty database on SQLite, in memory where the machine has a folder for it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="podyard-history-", dir=memory if memory.is_dir() else None
    ) as folder:
        write_empty_database(Path(folder) / "podyard.db")
        yield f"sqlite:///{folder}/podyard.db"


def without_prices(card: RateCard, missing: Collection[str]) -> RateCard:
    """The card without these SKUs. One that charges disks or objects keeps a price of them."""
    gone = set(missing)
    for switched in ("disk", "object"):
        own = {name for name, sku in card.skus.items() if sku.generation == switched}
        if own and own <= gone:
            gone.discard(min(own))
    return dataclasses.replace(
        card, skus={name: sku for name, sku in card.skus.items() if name not in gone}
    )
