"""`podyard bill ...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import click

from podyard.base.durations import duration_for_people
from podyard.base.money import (
    amount_text,
    money_text,
    nanos_from_decimal_text,
    price_text,
    without_zeros,
)
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.names import complete_node
from podyard.cli.kit.options import client_of, output_option, project_options, target_options
from podyard.cli.kit.output import emit, say
from podyard.cli.money import bill_invoice, credit_note, export

_COLUMNS = {
    "NODE": "id",
    "ZONE": "location",
    "TYPE": "acceleratorType",
    "USAGE": "usage",
    "CREATED_BY": "createdBy",
    "USED": "used",
    "PER_HOUR": "pricePerHour",
    "COST": "cost",
}


_STORAGE = {
    "NAME": "id",
    "KIND": "kind",
    "PLACE": "location",
    "TYPE": "type",
    "CREATED_BY": "createdBy",
    "GIB_MONTHS": "used",
    "OPERATIONS": "operations",
    "COST": "cost",
}
_MONTH_SECONDS = 730 * 3600


@click.group(cls=CommandGroup, default="show")
def bill() -> None:
    """Show costs, and manage invoices, credits and exports."""


@bill.command()
@target_options
@click.option(
    "--node", shell_complete=complete_node, help="Only the node with this id (in --zone)."
)
@output_option
def show(
    data: str | None, project: str | None, location: str | None, node: str | None, output: str
) -> None:
    """Show the billed seconds and the cost of each node, and what disks and buckets hold and are
    asked for, where that is charged.

    `*` marks an estimate: the node is still READY.
    """
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
            "pricePerHour": _price(item["pricePerHour"]) if "pricePerHour" in item else "no price",
            "used": f"{duration_for_people(item['seconds'])}{'*' if item['estimated'] else ''}",
            "cost": (item.get("heldBecause") and "held") or money_text(item["amount"]),
        }
        for item in found["nodes"]
    ]
    emit(rows, output, _COLUMNS)
    if found["storage"]:
        click.echo()
        emit([_storage(item) for item in found["storage"]], output, _STORAGE)
    for item in found["nodes"]:
        if "heldBecause" in item.get("host", {}):
            say(
                f"not billed, since it has no price: hosts of {item['node']}: "
                f"{item['host']['heldBecause']}"
            )
    for item in found["nodes"]:
        if "waivedBecause" in item:
            click.echo(
                f"{item['node'].rsplit('/', 1)[-1]}: {item['waivedSeconds']} s are "
                f"{item['waivedBecause']}"
            )
    total = (
        f"Total {duration_for_people(found['seconds'])}, {money_text(found['amount'])} as of "
        f"{found['asOf']}"
    )
    click.echo(f"{total} (exactly {found['seconds']} s, ${without_zeros(found['amount'])})")


def _storage(item: dict[str, Any]) -> dict[str, Any]:
    return {
        **item,
        "id": item["resource"].rsplit("/", 1)[-1],
        "used": f"{item['gibSeconds'] / _MONTH_SECONDS:.6f}" if "gibSeconds" in item else "",
        "operations": item.get("operations", ""),
        "cost": (item.get("heldBecause") and "held") or money_text(item["amount"]),
    }


@bill.command()
@project_options
@click.option(
    "--group-by",
    metavar="DIMENSION",
    default="type",
    show_default=True,
    help=(
        "project, region, zone, generation, type, usage, sku, user, resource, node, job, "
        "or label:KEY."
    ),
)
@click.option(
    "--where",
    multiple=True,
    metavar="DIMENSION=VALUE",
    help="Only costs of this value, for example label:team=research; may be repeated.",
)
@click.option(
    "--from",
    "first",
    metavar="DAY",
    help="First day, for example 2026-03-01 (default: of this month).",
)
@click.option("--to", "last", metavar="DAY", help="Last day, included (default: today).")
@click.option(
    "--bucket", type=click.Choice(["hour", "day", "month"]), help="Show the costs by time, too."
)
@click.option(
    "--by",
    type=click.Choice(["use", "invoice"]),
    default="use",
    show_default=True,
    help="Count by the time of use, or by the month of the invoice, with tax.",
)
@output_option
def explore(data: str | None, project: str | None, output: str, **given: Any) -> None:
    """Show the costs of some days by what they were for, such as --group-by user or --group-by
    label:team.

    Labels count as they were at the time of use.
    """
    client = client_of(data, project)
    found = client.call(
        "GET",
        f"{client.project_path()}/costs:explore",
        groupBy=given["group_by"],
        where=given["where"],
        **{"from": given["first"]},
        to=given["last"],
        bucket=given["bucket"],
        by=given["by"],
    )
    if output != "table":
        emit(found, output)
        return
    net, currency = found["total"]["net"], found["currency"]
    sums = {name.upper(): name for name in ("gross", "credits", "net")}
    rows, bars = (
        [_in_currency(row, currency, sums.values()) for row in found[part]]
        for part in ("rows", "bars")
    )
    emit(rows, output, {found["groupBy"].upper(): "group", **sums})
    if given["bucket"] is not None:
        click.echo()
        emit(bars, output, {found["bucket"].upper(): "name", **sums})
    total = _in_currency({"net": net}, currency, ["net"])["net"]
    click.echo(
        f"Total {total} from {found['firstDay']} to {found['lastDay']} as of {found['asOf']}"
    )


@bill.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["jsonl"]),
    expose_value=False,
    help="Output format: JSON Lines.",
)
def replay(file: BinaryIO) -> None:
    """Compute bills of your own cases: prices, events and terms, one JSON object per line of FILE
    (`-`: stdin).

    Works without a running Podyard. Prints one line per case: its bill or its error. Exit code 1
    after an error.
    """
    from podyard.pricing.replay import replay_line

    failed = False
    for line in _lines(file):
        answer, is_result = replay_line(line)
        failed = failed or not is_result
        click.echo(json.dumps(answer, separators=(",", ":")))
    if failed:
        sys.exit(1)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines that say something. Of one that is too long comes just enough to be refused; the
    rest is skipped."""
    from podyard.pricing.replay import LINE_BYTES_MAX

    while line := file.readline(LINE_BYTES_MAX + 1):
        rest = line
        while len(rest) > LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES_MAX + 1)
        if line.strip():
            yield line


def _in_currency(row: dict[str, Any], currency: str, names: Iterable[str]) -> dict[str, Any]:
    """Other currencies than US dollars are those of invoices, whose amounts are rounded already."""
    return {
        **row,
        **{
            name: money_text(row[name]) if currency == "USD" else amount_text(row[name], currency)
            for name in names
        },
    }


def _price(text: str) -> str:
    return price_text(nanos_from_decimal_text(text))


for _command in (*bill_invoice.COMMANDS, *export.COMMANDS, credit_note.credit_note):
    bill.add_command(_command)

COMMANDS = {"bill": bill}
