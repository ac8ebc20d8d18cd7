"""`podyard bill credit-note create|list`, `podyard commitment end`, `podyard bill credit end`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from podyard.base.money import amount_text
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, project_options
from podyard.cli.kit.output import emit

_COLUMNS = {
    "CREDIT_NOTE": "creditNote",
    "OF": "of",
    "LINE": "line",
    "AMOUNT": "amount",
    "CURRENCY": "currency",
    "CREATED": "createTime",
    "CREATED_BY": "createdBy",
    "REASON": "reason",
}
_reason_option = click.option("--reason", required=True, help="Reason, kept with the credit note.")


@click.group(cls=CommandGroup, name="credit-note")
def credit_note() -> None:
    """Manage credit notes, which take back a part of an issued invoice."""


@credit_note.command()
@click.argument("month")
@click.argument("amount")
@project_options
@click.option(
    "--line",
    default="",
    metavar="LINE",
    help="Line of the invoice, as `podyard bill invoice` shows its id.",
)
@_reason_option
@output_option
def create(data: str | None, project: str | None, output: str, **given: Any) -> None:
    """Take back AMOUNT, tax included, of the invoice of MONTH. The invoice does not change."""
    _create(data, project, output, given)


@credit_note.command(name="list")
@project_options
@lists(_COLUMNS, row=lambda note: _row(note))
def list_notes(data: str | None, project: str | None) -> Iterable[Item]:
    """List credit notes, oldest first."""
    client = client_of(data, project)
    notes: list[Item] = client.call("GET", f"{client.project_path()}/creditNotes")["creditNotes"]
    return notes


@click.command(name="end")
@click.argument("commitment")
@project_options
@_reason_option
@output_option
def end_commitment(data: str | None, project: str | None, output: str, **given: Any) -> None:
    """End COMMITMENT now. A payment upfront is taken back for the rest of the term."""
    _create(data, project, output, given)


@click.command(name="end")
@click.argument("credit")
@project_options
@_reason_option
@output_option
def end_credit(data: str | None, project: str | None, output: str, **given: Any) -> None:
    """Stop using CREDIT, from the current month on."""
    _create(data, project, output, given)


def _create(data: str | None, project: str | None, output: str, given: dict[str, Any]) -> None:
    client = client_of(data, project)
    found = client.call(
        "POST",
        f"{client.project_path()}/creditNotes",
        {name: value for name, value in given.items() if value},
    )
    emit(found if output != "table" else _row(found), output, _COLUMNS)


def _row(note: dict[str, Any]) -> dict[str, Any]:
    subject = next(name for name in ("month", "commitment", "credit") if name in note)
    return {**note, "of": note[subject], "amount": amount_text(note["amount"], note["currency"])}
