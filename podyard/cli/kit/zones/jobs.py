"""The zone of a new job: that of its node, or one that offers the node that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.cli.kit.client import Client
from podyard.cli.kit.zones.offers import move_to_offer
from podyard.cli.kit.zones.resources import NODES, move_to


def move_for_job(client: Client, flags: Mapping[str, Any], zone: str | None) -> None:
    """Move the client to the zone of --node, or to one that offers --accelerator-type. `zone`: the
    one that the command line names, which stays."""
    node = flags.get("node")
    if zone is not None or flags.get("region"):
        return
    if not node:
        move_to_offer(client, flags.get("accelerator_type"))
    elif "/" not in node:  # a full name has its zone
        move_to(client, NODES, node)
