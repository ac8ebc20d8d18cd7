"""`podyard bill ...`."""

from __future__ import annotations

from decimal import Decimal

import click

from podyard.cli.options import client_of, output_option, target_options
from podyard.cli.output import emit

_COLUMNS = {
    "NODE": "id",
    "ZONE": "location",
    "TYPE": "acceleratorType",
    "USAGE": "usage",
    "SECONDS": "shown_seconds",
    "USD_PER_HOUR": "pricePerHour",
    "USD": "shown_amount",
}


@click.group()
def bill() -> None:
    """What it costs."""


@bill.command()
@target_options
@click.option("--node", help="Only the node of this id (in --zone).")
@output_option
def show(data: str | None, project: str | None, location: str | None, node: str | None, output: str) -> None:
    """Billed seconds and cost of every node, up to now. `*`: still READY, so an estimate."""
    client = client_of(data, project, location)
    name = None
    if node is not None:
        name = f"projects/{client.target.project}/locations/{client.target.location}/nodes/{node}"
    found = client.call("GET", f"{client.project_path()}/usage", node=name)
    if output != "table":
        emit(found, output)
        return
    rows = [
        {
            **item,
            "id": item["node"].rsplit("/", 1)[-1],
            "pricePerHour": _money(item["pricePerHour"], 4) if "pricePerHour" in item else "no price",
            "shown_seconds": f"{item['seconds']}{'*' if item['estimated'] else ''}",
            "shown_amount": (item.get("heldBecause") and "held") or _money(item["amount"], 6),
        }
        for item in found["nodes"]
    ]
    emit(rows, output, _COLUMNS)
    click.echo(f"Total {found['seconds']} s, ${_money(found['amount'], 6)} as of {found['asOf']}")


def _money(text: str, decimals: int) -> str:
    return str(Decimal(text).quantize(Decimal(1).scaleb(-decimals), rounding="ROUND_HALF_UP"))


COMMANDS = {"bill": bill}
