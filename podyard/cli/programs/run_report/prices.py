"""Prices of slices in the report of a run, and the zone that they are taken from."""

from __future__ import annotations

from podyard.base.clock import OsClock, PlatformTime
from podyard.base.money import cost_text
from podyard.cli.kit.client import LOCATION_DEFAULT
from podyard.cli.programs.estimate import prices_of
from podyard.domain.fleet import region_of
from podyard.engine.report.summary import HourlyPrice
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.pricing.current_card import default_rate_card
from podyard.settings import from_environment
from podyard.stack.fleets import read_fleet


def prices(kind: AcceleratorType, zone: str) -> tuple[HourlyPrice, ...]:
    """Return the price of an hour of a slice today, for each usage class."""
    return prices_of(
        default_rate_card(), kind.name, region_of(zone), PlatformTime(OsClock().now().nanos)
    )


def zone_of(kind: AcceleratorType, wanted: str | None) -> str:
    """Return the zone that the user names, else the first of the fleet in which the type is sold,
    the usual one before all."""
    if wanted is not None:
        return wanted
    zones = [LOCATION_DEFAULT, *read_fleet(from_environment().fleet).zones]
    priced = (
        zone
        for zone in zones
        if any(price.nanos_per_hour is not None for price in prices(kind, zone))
    )
    return next(priced, LOCATION_DEFAULT)


def price_text(price: HourlyPrice, seconds: float) -> str:
    """Return the cost of so many seconds for people."""
    cost = price.of_seconds(seconds)
    return "no price" if cost is None else cost_text(cost, price.currency)
