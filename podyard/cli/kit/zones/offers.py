"""Zones that offer a type of accelerator."""

from __future__ import annotations

import dataclasses

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.client import Client
from podyard.cli.kit.output import say


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


def move_to_region(client: Client, accelerator_type: str, region: str) -> list[str]:
    """Move the client to the first zone of a region that offers the type; return the others."""
    first, *others = zones_with(client, accelerator_type, region)
    client.target = dataclasses.replace(client.target, location=first)
    return others


def _types(client: Client, zone: str) -> set[str]:
    pages = client.pages(f"{client.zone_path(zone)}/acceleratorTypes", "acceleratorTypes")
    return {str(item["type"]) for item in pages}


def move_to_offer(client: Client, accelerator_type: str | None) -> None:
    """Move the client to a zone that offers the type, if the command line names none and the usual
    one (of the environment, which `podyard env` sets) does not offer it. A type that no zone offers
    stays for the API to refuse."""
    target = client.target
    if target.is_zone_named or not accelerator_type:
        return
    if accelerator_type in _types(client, target.location):
        return
    try:
        first, *_ = zones_with(client, accelerator_type, "")
    except PodyardError:
        return
    say(f"{target.location} does not offer {accelerator_type}: using zone {first}")
    client.target = dataclasses.replace(target, location=first)
