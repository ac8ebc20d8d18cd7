"""`podyard budget set|list|delete|events`."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import click

from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, project_options
from podyard.cli.kit.output import emit, say

_COLUMNS = {
    "NAME": "name",
    "SCOPE": "scope",
    "AMOUNT": "amount|usd",
    "PERIOD": "period",
    "SPENT": "spent|usd",
    "REACHED": "reached",
    "EXPECTED": "expected",
    "ACTIONS": "acts|text",
}
_EVENTS = {
    "AT": "at",
    "BUDGET": "budget",
    "PERIOD": "period",
    "KIND": "kind",
    "DETAIL": "detail",
    "COST": "cost|usd",
    "TEXT": "text|text",
}


@click.group(cls=CommandGroup, default="list")
def budget() -> None:
    """Manage budgets, which notify, refuse new nodes or stop running nodes."""


@budget.command(name="set")
@click.argument("name")
@project_options
@click.option("--amount", required=True, metavar="USD", help="Amount of the budget.")
@click.option(
    "--scope",
    default="project",
    show_default=True,
    help=(
        "What the budget covers: account, project, label:KEY=VALUE, user:EMAIL, job:ID or node:ID."
    ),
)
@click.option(
    "--period",
    type=click.Choice(["month", "total"]),
    default="month",
    show_default=True,
    help="Period of the budget.",
)
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="SHARE",
    help="Fraction of the amount at which to act (default: 1); may be repeated.",
)
@click.option(
    "--forecast",
    "forecasts",
    multiple=True,
    metavar="SHARE",
    help="Fraction of the amount at which to act on the month's forecast; may be repeated.",
)
@click.option(
    "--action",
    "actions",
    multiple=True,
    help="Action: notify:URL, refuse-new-nodes or stop; may be repeated.",
)
@output_option
def set_budget(data: str | None, project: str | None, name: str, output: str, **given: Any) -> None:
    """Create or replace the budget NAME."""
    client = client_of(data, project)
    body = {
        "amount": given["amount"],
        "scope": given["scope"],
        "period": given["period"],
        "thresholds": list(given["thresholds"]) or ["1"],
        "forecasts": list(given["forecasts"]),
        "actions": list(given["actions"]),
    }
    found = client.call("PUT", f"{client.project_path()}/budgets/{quote(name, safe='')}", body)
    if "secret" in found and any(action.startswith("notify:") for action in found["actions"]):
        say(f"What is sent is signed with the secret {found['secret']}: it is shown this once")
    emit(_row(found) if output == "table" else found, output, _COLUMNS)


@budget.command(name="list")
@project_options
@lists(_COLUMNS, row=lambda found: _row(found))
def list_budgets(data: str | None, project: str | None) -> Iterable[Item]:
    """List the budgets with the cost of their current period."""
    client = client_of(data, project)
    found: list[Item] = client.call("GET", f"{client.project_path()}/budgets")["budgets"]
    return found


@budget.command(name="delete")
@click.argument("name")
@project_options
def delete_budget(data: str | None, project: str | None, name: str) -> None:
    """Delete the budget NAME. Its events are kept."""
    client = client_of(data, project)
    client.call("DELETE", f"{client.project_path()}/budgets/{quote(name, safe='')}")
    say(f"Deleted budget {name}")


@budget.command()
@project_options
@lists(_EVENTS)
def events(data: str | None, project: str | None) -> Iterable[Item]:
    """List the events of budgets."""
    client = client_of(data, project)
    return client.pages(f"{client.project_path()}/budgetEvents", "events")


def _row(found: dict[str, Any]) -> dict[str, Any]:
    """`reachedAt` of a budget that is not used up is when it will be, if all goes on as it is."""
    is_used_up = "spent" in found and Decimal(found["spent"]) >= Decimal(found["amount"])
    at = found.get("reachedAt")
    return {
        **found,
        "acts": ", ".join(found["actions"]) or None,
        "reached": at if is_used_up else None,
        "expected": None if is_used_up else at,
    }


COMMANDS = {"budget": budget}
