"""`podyard calls`: what clients have asked for that Podyard does not serve."""

from __future__ import annotations

from collections.abc import Iterable

import click

from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, target_options

_COLUMNS = {
    "LAST": "lastTime",
    "CALLS": "calls",
    "METHOD": "method",
    "HOST": "host",
    "PATH": "path|text",
}


@click.command()
@target_options
@click.option(
    "--unserved", is_flag=True, required=True, help="Only calls that were refused with 501."
)
@lists(_COLUMNS)
def calls(
    data: str | None, project: str | None, location: str | None, unserved: bool
) -> Iterable[Item]:
    """List the calls that clients made to Google's APIs."""
    assert unserved  # the only kind that is recorded
    client = client_of(data, project, location)
    found: list[Item] = client.call("GET", "/podyard/v1/unservedCalls")["calls"]
    return found


COMMANDS = {"calls": calls}
