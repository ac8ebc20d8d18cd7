"""The rate card of this process."""

from __future__ import annotations

import functools

from podyard.pricing.sku import RateCard
from podyard.settings import rate_card_path


@functools.cache
def default_rate_card() -> RateCard:
    """The file that PODYARD_RATE_CARD names, else the card that comes with Podyard. Raises FAILED_PRECONDITION that
    names the row that is wrong."""
    # Not at the top: the reader of cards is only needed once.
    from podyard.pricing import cards

    return cards.read_card(rate_card_path() or cards.SHIPPED)
