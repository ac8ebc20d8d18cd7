"""A second recomputation, from the audit's events alone: over a thousand cycles of 30 days it
differs from the ledger
by nothing. It reads the events as an auditor would, and shares no code with the meter."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from fractions import Fraction
from random import Random

import pytest

from podyard.base.clock import PlatformTime
from podyard.domain.invoice import BillingPolicy
from podyard.domain.ledger import balances
from podyard.domain.node import UsageClass
from podyard.domain.usage import PriceUnit, UsageEvent
from podyard.pricing import ledger
from podyard.pricing.bill import Resource, Terms, compute
from podyard.pricing.meter import node_policy
from podyard.pricing.sku import Sku, make_sku, make_version

CYCLES, NODES, DAYS = 1_000, 6, 30
NANOS = 10**9
FIRST = PlatformTime.from_rfc3339("2026-01-01T00:00:00Z").nanos
STATES = ("READY", "STOPPED", "STARTING", "REPAIRING", "PREEMPTED", "CREATING", "DELETING")


@dataclasses.dataclass(frozen=True)
class AuditRow:
    """What the audit says of one change: nothing is derived."""

    node: str
    usage: str
    sku: str
    chips: int
    state: str
    at: int


@dataclasses.dataclass(frozen=True)
class Cycle:
    start: int
    rows: list[AuditRow]
    prices: dict[str, list[tuple[int, str]]]  # by SKU: (second, dollars per chip and hour)

    @property
    def end(self) -> int:
        return self.start + DAYS * 86_400 * NANOS


def draw(chance: Random) -> Cycle:
    start = FIRST + chance.randrange(365 * 86_400) * NANOS + chance.choice([0, 250_000_000])
    prices = {}
    for sku in ("x", "y"):
        changes = sorted(
            {start // NANOS + chance.randrange(DAYS * 86_400) for _ in range(chance.randrange(3))}
        )
        prices[sku] = [
            (second, f"{chance.randrange(12)}.{chance.randrange(10**9):09d}")
            for second in (0, *changes)
        ]
    rows = []
    for index in range(NODES):
        usage, sku, chips = (
            chance.choice(list(UsageClass)),
            chance.choice("xy"),
            chance.choice([1, 4, 8, 256, 2048]),
        )
        at = start + chance.randrange(DAYS * 86_400 * NANOS)
        for _ in range(chance.randrange(60)):
            rows.append(AuditRow(f"n{index}", usage, sku, chips, chance.choice(STATES), at))
            at += chance.choice(
                [0, chance.randrange(NANOS), chance.randrange(80 * NANOS), chance.randrange(10**15)]
            )
    return Cycle(start, sorted(rows, key=lambda row: row.at), prices)


def recomputed(cycle: Cycle) -> dict[str, Fraction]:
    """Dollars by SKU: node after node, along the rows, with nothing but what they say."""
    dollars: dict[str, Fraction] = defaultdict(Fraction)
    for node in {row.node: row for row in cycle.rows}.values():
        rows = [row for row in cycle.rows if row.node == node.node and row.at <= cycle.end]
        ready_since, billed_until, is_first = None, 0, True
        for row in [*rows, dataclasses.replace(node, state="(end)", at=cycle.end)]:
            if row.state == "READY":
                ready_since = row.at if ready_since is None else ready_since
                continue
            if ready_since is None:
                continue
            taken_back = node.usage in ("preemptible", "spot") and row.state == "PREEMPTED"
            free = is_first and taken_back and row.at - ready_since < 60 * NANOS
            if not free and row.at > ready_since:
                first, stop = max(ready_since // NANOS, billed_until), (row.at + NANOS - 1) // NANOS
                dollars[row.sku] += row.chips * price_of(cycle.prices[row.sku], first, stop)
                billed_until = max(stop, billed_until)
            ready_since, is_first = None, is_first and row.at == ready_since
    return dict(dollars)


def price_of(prices: list[tuple[int, str]], first: int, stop: int) -> Fraction:
    """Dollars for one chip that is used in `[first, stop)`."""
    ends = [second for second, _ in prices[1:]] + [2**62]
    used = (
        max(0, min(stop, end) - max(first, since))
        for (since, _), end in zip(prices, ends, strict=True)
    )
    return sum(
        (Fraction(usd) * seconds / 3600 for (_, usd), seconds in zip(prices, used, strict=True)),
        Fraction(0),
    )


def from_ledger(cycle: Cycle, zone: str) -> dict[str, Fraction]:
    """Return what the platform bills, books, and has in its accounts."""
    skus = {name: sku_of(name, rows) for name, rows in cycle.prices.items()}
    resources, events = {}, []
    for seq, row in enumerate(cycle.rows):
        policy = node_policy(UsageClass(row.usage))
        resources[row.node] = Resource(row.node, "tpu", skus[row.sku], row.chips, policy)
        events.append(UsageEvent(f"e{seq}", row.node, seq, row.state, PlatformTime(row.at)))
    bill = compute(events, resources, Terms(BillingPolicy(time_zone=zone)), PlatformTime(cycle.end))
    booked = [ledger.of_invoice("demo", invoice) for invoice in bill.invoices]
    accounts = balances(entry for transaction in booked for entry in transaction.entries)
    assert sum(amount.parts for _, amount in accounts) == 0
    return {
        name.removeprefix("revenue:"): -amount.fraction()
        for name, amount in accounts
        if name.startswith("revenue:")
    }


def sku_of(name: str, rows: list[tuple[int, str]]) -> Sku:
    versions = [
        make_version(name, PlatformTime(second * NANOS).rfc3339(), usd, "drawn")
        for second, usd in rows
    ]
    return make_sku(name, PriceUnit.CHIP_HOUR, versions)


@pytest.mark.slow
def test_a_thousand_cycles_recomputed_from_the_audit_differ_by_nothing() -> None:
    chance = Random(20_261_121)
    dollars = Fraction(0)
    for _ in range(CYCLES):
        cycle = draw(chance)
        zone = chance.choice(["UTC", "America/Los_Angeles", "Asia/Kolkata"])
        expected = {sku: cost for sku, cost in recomputed(cycle).items() if cost}
        assert from_ledger(cycle, zone) == expected
        dollars += sum(expected.values())
    assert dollars > 10**6  # they were no empty cycles
