"""Zones of resources that are named without a zone: any zone of the project that has the name."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.client import Client
from podyard.cli.kit.options import client_of

EVERY_ZONE = "-"


@dataclasses.dataclass(frozen=True, slots=True)
class ZonedResource:
    """A kind of resource that a command names. `path`: of its collection in a zone."""

    word: str
    collection: str
    path: Callable[[Client, str], str]
    list_command: str


NODES = ZonedResource(
    "node", "nodes", lambda client, zone: f"{client.zone_path(zone)}/nodes", "podyard nodes"
)
QUEUED_RESOURCES = ZonedResource(
    "queued resource",
    "queuedResources",
    # v2alpha1: best effort is known to no other version
    lambda client, zone: f"{client.zone_path(zone, 'v2alpha1')}/queuedResources",
    "podyard qr list",
)
RESERVATIONS = ZonedResource(
    "reservation",
    "reservations",
    lambda client, zone: f"{client.own_path(zone)}/reservations",
    "podyard reservation list",
)
SWEEPS = ZonedResource(
    "sweep",
    "sweeps",
    lambda client, zone: f"{client.own_path(zone)}/sweeps",
    "podyard sweep list",
)


def client_at(
    resource: ZonedResource, name: str, data: str | None, project: str | None, zone: str | None
) -> Client:
    """Return a client in the zone of a resource; `zone`: the one that the command line names."""
    client = client_of(data, project, zone)
    if zone is None:
        move_to(client, resource, name)
    return client


def move_to(client: Client, resource: ZonedResource, name: str) -> None:
    """Move the client to the zone of a resource. A zone of the environment wins if it has the name.

    Raises NOT_FOUND where no zone has it, and FAILED_PRECONDITION where several have.
    """
    target = client.target
    try:
        names = [
            str(item.get("name")).split("/")
            for item in client.pages(resource.path(client, EVERY_ZONE), resource.collection)
        ]
    except PodyardError as error:
        if error.code is not Code.PERMISSION_DENIED:
            raise
        return  # a caller who may not list may still get it, in the usual zone
    zones = sorted(parts[3] for parts in names if parts[-1] == name)
    if target.is_zone_set and target.location in zones:
        return
    if len(zones) > 1:
        raise PodyardError(
            Code.FAILED_PRECONDITION,
            f"{resource.word} {name!r} exists in {len(zones)} zones, {', '.join(zones)}: "
            f"select one with --zone",
        )
    if not zones:
        near = difflib.get_close_matches(name, [parts[-1] for parts in names], 1)
        hint = f" (the nearest name is {near[0]!r})" if near else ""
        raise PodyardError(
            Code.NOT_FOUND,
            f"{resource.word} {name!r} was not found in any zone of project "
            f"{target.project}{hint}: `{resource.list_command}` lists them",
        )
    client.target = dataclasses.replace(target, location=zones[0])
