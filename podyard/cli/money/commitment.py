"""`podyard commitment buy|list|end`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, target_options
from podyard.cli.kit.output import emit, say
from podyard.cli.money.credit_note import end_commitment

_COLUMNS = {
    "COMMITMENT": "commitment",
    "SKU": "sku",
    "QUANTITY": "quantity",
    "UNIT": "unit",
    "USD_PER_HOUR": "pricePerHour",
    "YEARS": "years",
    "START": "startTime",
    "END": "endTime",
    "UPFRONT": "upfront",
    "VERIFIED": "verified",
}


@click.group(cls=CommandGroup, default="list")
def commitment() -> None:
    """Manage commitments: pay for units for 1 or 3 years, used or not, at a lower price."""


@commitment.command()
@target_options
@click.option(
    "--type", "accelerator_type", metavar="TYPE", help="Accelerator type, in the region of --zone."
)
@click.option("--sku", metavar="SKU", help="SKU, instead of --type.")
@click.option(
    "--quantity",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of nodes (--type) or units (--sku).",
)
@click.option("--years", type=click.Choice(["1", "3"]), required=True, help="Length in years.")
@click.option("--upfront", is_flag=True, help="Pay the whole commitment now instead of monthly.")
@click.option("--dry-run", is_flag=True, help="Show the commitment without buying it.")
@output_option
def buy(
    data: str | None, project: str | None, location: str | None, output: str, **given: Any
) -> None:
    """Buy a commitment that starts now."""
    if (given["accelerator_type"] is None) == (given["sku"] is None):
        raise click.UsageError("specify either --type or --sku")
    client = client_of(data, project, location)
    body: dict[str, Any] = {
        "quantity": given["quantity"],
        "years": int(given["years"]),
        "upfront": given["upfront"],
        "validateOnly": given["dry_run"],
    }
    if given["sku"] is not None:
        body["sku"] = given["sku"]
    else:
        body |= {"acceleratorType": given["accelerator_type"], "location": client.target.location}
    found = client.call("POST", f"{client.project_path()}/commitments", body)
    if not found["verified"]:
        say(f"The price is not verified: {found['source']}")
    if given["dry_run"]:
        say("Nothing was bought: --dry-run")
    emit(found, output, _COLUMNS)


@commitment.command(name="list")
@target_options
@lists(_COLUMNS)
def list_commitments(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List the commitments of the project, including expired ones."""
    client = client_of(data, project, location)
    found: list[Item] = client.call("GET", f"{client.project_path()}/commitments")["commitments"]
    return found


commitment.add_command(end_commitment)
COMMANDS = {"commitment": commitment}
