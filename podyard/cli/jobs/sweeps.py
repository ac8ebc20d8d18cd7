"""`podyard sweep ...`: jobs that differ in some values, submitted together and compared in one
table."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from podyard.cli.jobs.jobs import (
    WithArguments,
    field_options,
    new_job,
    variable_options,
)
from podyard.cli.jobs.logs import ANY_ZONE
from podyard.cli.jobs.progress import steps_text
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, target_options, value_of
from podyard.cli.kit.output import emit
from podyard.cli.kit.zones.jobs import move_for_job
from podyard.cli.kit.zones.resources import SWEEPS, client_at

_METRIC = click.option(
    "--metric",
    metavar="NAME[:min|max]",
    help="Metric by which the best job is found (default: loss).",
)


@click.group(cls=CommandGroup, default="list")
def sweep() -> None:
    """Submit jobs that differ in some values, and compare them."""


@sweep.command(cls=WithArguments)
@click.argument("sweep_id")
@target_options
@click.option(
    "--values",
    "lists",
    multiple=True,
    metavar="NAME=VALUE,...",
    help=(
        "Values to try: of an argument, or of seed, steps or globalBatch. Several of "
        "these: every "
        "combination."
    ),
)
@click.option(
    "--rows",
    "table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.csv",
    help="Table of values: names in the first line, one job for each further line.",
)
@click.option(
    "--parallel",
    type=int,
    help="Number of nodes to create (default: 1). The jobs use them in turn.",
)
@field_options
@variable_options
@output_option
def submit(  # noqa: PLR0913
    sweep_id: str,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
    lists: tuple[str, ...],
    table: Path | None,
    parallel: int | None,
    **flags: Any,
) -> None:
    """Submit one job for each set of values. The jobs are named SWEEP_ID-0, SWEEP_ID-1 and so on.

    A program of --run gets its values as arguments (--lr=0.1), and a --command as variables.

    \b
    podyard sweep submit rates --recipe digits-cnn --node pod --values learningRate=0.001,0.01
    --values seed=1,2 podyard sweep submit rates --run train.py --accelerator-type v2-8 --values
    lr=0.1,0.01 -- --epochs 3
    """
    client = client_of(data, project, location)
    move_for_job(client, flags, location)
    body = new_job(client, flags) | ({} if parallel is None else {"parallel": parallel})
    if lists:
        body["values"] = _values(lists)
    if table is not None:
        body["rows"] = _rows(table)
    _print(client.call("POST", f"{client.own_path()}/sweeps", body, sweepId=sweep_id), output)


@sweep.command(name="list")
@target_options
@lists(
    {"SWEEP": "id", "ZONE": "zone", "JOBS": "jobs", "ENDED": "ended"}, row=lambda item: _row(item)
)
def list_sweeps(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List sweeps in all zones, newest first. --zone selects one zone."""
    client = client_of(data, project, location)
    return client.pages(f"{client.own_path(location or ANY_ZONE)}/sweeps", "sweeps")


def _row(item: Item) -> Item:
    parts = item["name"].split("/")
    return {**item, "id": parts[-1], "zone": parts[3]}


@sweep.command()
@click.argument("sweep_id")
@target_options
@_METRIC
@output_option
def describe(
    sweep_id: str,
    data: str | None,
    project: str | None,
    location: str | None,
    metric: str | None,
    output: str,
) -> None:
    """Show the values, results and costs of a sweep's jobs in one table."""
    client = client_at(SWEEPS, sweep_id, data, project, location)
    _print(client.call("GET", _path(client, sweep_id), metric=metric), output)


@sweep.command()
@click.argument("sweep_id")
@target_options
@output_option
def cancel(
    sweep_id: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Cancel the jobs of a sweep that have not ended."""
    client = client_at(SWEEPS, sweep_id, data, project, location)
    _print(client.call("POST", f"{_path(client, sweep_id)}:cancel", {}), output)


def _path(client: Client, sweep_id: str) -> str:
    return f"{client.own_path()}/sweeps/{quote(sweep_id)}"


def _values(lists: Sequence[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in lists:
        name, equals, values = item.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--values: {item!r} is not NAME=VALUE,...")
        if name in found:
            raise click.UsageError(f"--values: {name} is given twice")
        found[name] = [value_of(value) for value in values.split(",")]
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    """Of a CSV file; a byte order mark, as spreadsheets write it, does not count."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise click.UsageError(f"--rows: {path} cannot be read as CSV: {error}") from None
    names, rows = (lines[0], lines[1:]) if lines else ([], [])
    if not rows or not all(names) or len(set(names)) < len(names):
        raise click.UsageError(
            f"--rows: {path} needs a first line of different names and at least one more line"
        )
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise click.UsageError(
                f"--rows: line {number} of {path} has {len(row)} values, not {len(names)}"
            )
    return [{name: value_of(value) for name, value in zip(names, row, strict=True)} for row in rows]


def _print(found: dict[str, Any], output: str) -> None:
    if output != "table":
        emit(found, output)
        return
    metric, names = found["metric"], list(found["jobs"][0]["values"]) if found["jobs"] else []
    rows = [
        {
            **job,
            "progress": steps_text(job),
            "best": "*" if job["job"] == found.get("best") else None,
        }
        for job in found["jobs"]
    ]
    columns = {
        "JOB": "job",
        **{name: f"values.{name}" for name in names},
        "STATE": "state",
        "STEPS": "progress",
    }
    columns |= {metric.upper(): f"latest.{metric}", "COST": "cost|usd", "BEST": "best"}
    emit(rows, output, columns)


COMMANDS = {"sweep": sweep}
