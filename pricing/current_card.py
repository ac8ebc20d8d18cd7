"""The rate card of this process."""

from __future__ import annotations

import functools

from podyard.pricing.machines import MachineCard
from podyard.pricing.sku import RateCard
from podyard.settings import machine_card_path, rate_card_path


@functools.cache
def default_rate_card() -> RateCard:
    """The file that PODYARD_RATE_CARD names, else the card that comes with Podyard. Raises
    FAILED_PRECONDITION that names the row that is wrong."""
    # Not at the top: the reader of cards is only needed once.
    from podyard.pricing import cards

    return cards.read_card(rate_card_path() or cards.SHIPPED)


@functools.cache
def machine_card() -> MachineCard | None:
    """The file that PODYARD_MACHINE_CARD names; None: what jobs take of this machine is not priced.
    Raises NOT_FOUND, and FAILED_PRECONDITION that names the row."""
    path = machine_card_path()
    if path is None:
        return None
    from podyard.pricing import cards

    return cards.read_machine_card(path)
