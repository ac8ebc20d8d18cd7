"""`podyard budget set|list|delete|events`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import quote

import click

from podyard.cli.options import client_of, output_option, project_options
from podyard.cli.output import emit, say

_COLUMNS = {
    "NAME": "name",
    "SCOPE": "scope",
    "AMOUNT": "amount|usd",
    "PERIOD": "period",
    "SPENT": "spent|usd",
    "REACHED": "reached",
    "EXPECTED": "expected",
    "ACTIONS": "acts",
}
_EVENTS = {
    "AT": "at",
    "BUDGET": "budget",
    "PERIOD": "period",
    "KIND": "kind",
    "DETAIL": "detail",
    "COST": "cost|usd",
    "TEXT": "text",
}


@click.group()
def budget() -> None:
    """Budgets: amounts that somebody is told of, that refuse new nodes, or that stop what runs."""


@budget.command(name="set")
@click.argument("name")
@project_options
@click.option("--amount", required=True, metavar="USD")
@click.option("--scope", default="project", show_default=True, help="project, label:KEY=VALUE, job:ID or node:ID.")
@click.option("--period", type=click.Choice(["month", "total"]), default="month", show_default=True)
@click.option("--threshold", "thresholds", multiple=True, metavar="SHARE", help="Of the amount (default: 1).")
@click.option("--forecast", "forecasts", multiple=True, metavar="SHARE", help="That the month is expected to cost.")
@click.option("--action", "actions", multiple=True, help="notify:URL, refuse-new-nodes or stop.")
@output_option
def set_budget(data: str | None, project: str | None, name: str, output: str, **given: Any) -> None:
    """Set the budget NAME; another one of this name is replaced."""
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
@output_option
def list_budgets(data: str | None, project: str | None, output: str) -> None:
    """All budgets with what their period has cost so far."""
    client = client_of(data, project)
    found = client.call("GET", f"{client.project_path()}/budgets")["budgets"]
    emit([_row(item) for item in found] if output == "table" else found, output, _COLUMNS)


@budget.command(name="delete")
@click.argument("name")
@project_options
def delete_budget(data: str | None, project: str | None, name: str) -> None:
    """Delete the budget NAME. What it has done stays on record."""
    client = client_of(data, project)
    client.call("DELETE", f"{client.project_path()}/budgets/{quote(name, safe='')}")
    say(f"Deleted budget {name}")


@budget.command()
@project_options
@output_option
def events(data: str | None, project: str | None, output: str) -> None:
    """What budgets have done, and when."""
    client = client_of(data, project)
    emit(list(client.pages(f"{client.project_path()}/budgetEvents", "events")), output, _EVENTS)


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
