"""The cost of one's own machines for jobs, at the prices of a card of one's own: a second bill next
to Google's.

Each attempt is counted in whole CPU seconds and whole GiB-seconds, rounded up, at the prices in
force when it started: so every amount is an exact number of parts (R6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from podyard.base.money import Amount
from podyard.domain.replica import AttemptUse
from podyard.pricing.sku import Sku

MICROS_PER_SECOND = 1_000_000
KIB_PER_GIB = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class MachineCard:
    """Prices of an hour of one CPU, and of a GiB for an hour."""

    cpu: Sku
    memory: Sku


@dataclasses.dataclass(frozen=True, slots=True)
class MachineCost:
    """`amount` None: an attempt started before the card's first price."""

    cpu_seconds: int
    gib_seconds: int
    amount: Amount | None


def cost_of(card: MachineCard, attempts: Iterable[AttemptUse]) -> MachineCost:
    cpu_seconds = gib_seconds = 0
    amount: Amount | None = Amount()
    for used in attempts:
        cpu, gib = (
            -(-used.cpu_micros // MICROS_PER_SECOND),
            -(-used.memory_kib_seconds // KIB_PER_GIB),
        )
        cpu_seconds, gib_seconds = cpu_seconds + cpu, gib_seconds + gib
        prices = card.cpu.version_at(used.started), card.memory.version_at(used.started)
        if amount is None or prices[0] is None or prices[1] is None:
            amount = None
        else:
            amount += Amount.of_hourly(prices[0].nanos, cpu) + Amount.of_hourly(
                prices[1].nanos, gib
            )
    return MachineCost(cpu_seconds, gib_seconds, amount)
