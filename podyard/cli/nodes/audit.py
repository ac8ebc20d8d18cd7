"""`podyard admin audit`: who changed what, from where, and what was refused."""

from __future__ import annotations

from collections.abc import Iterable

import click

from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, data_option

_COLUMNS = {
    "TIME": "time",
    "ACTOR": "actor",
    "ADDRESS": "address",
    "METHOD": "method",
    "PATH": "path|text",
    "STATUS": "status",
    "REQUEST_ID": "requestId",
}


@click.command()
@data_option
@click.option("--actor", metavar="EMAIL", help="Only what this caller did.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@lists(_COLUMNS, limit=50)
def audit(data: str | None, actor: str | None, refused: bool) -> Iterable[Item]:
    """List changes and refusals, newest first."""
    client = client_of(data)
    return client.pages(
        "/podyard/v1/audit", "lines", actor=actor, refused="true" if refused else None
    )
