"""Where a type of accelerator can be had."""

from __future__ import annotations

from podyard.base.errors import Code, PodyardError
from podyard.cli.client import Client


def zones_with(client: Client, accelerator_type: str, region: str) -> list[str]:
    """The zones of a region (empty: of all) that offer a type, the usual one first."""
    found = client.call("GET", f"{client.zone_path('-').partition('/locations')[0]}/locations")
    zones = sorted(str(item["locationId"]) for item in found["locations"])
    zones = [zone for zone in zones if zone.startswith(f"{region}-" if region else "")]
    zones.sort(key=lambda zone: zone != client.target.location)
    offer = [zone for zone in zones if accelerator_type in _types(client, zone)]
    if not offer:
        where = f"region {region}" if region else "any zone"
        raise PodyardError(
            Code.INVALID_ARGUMENT, f"{accelerator_type} is not offered in {where}: name another"
        )
    return offer


def _types(client: Client, zone: str) -> set[str]:
    pages = client.pages(f"{client.zone_path(zone)}/acceleratorTypes", "acceleratorTypes")
    return {str(item["type"]) for item in pages}
