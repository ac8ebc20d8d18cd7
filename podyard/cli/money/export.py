"""`podyard bill export`: what was billed, as a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.client import Client
from podyard.cli.kit.options import client_of, project_options
from podyard.cli.kit.output import say

FORMATS = ("csv", "json", "focus", "bigquery", "html", "pdf")
_PRINTED = {"html": "print", "pdf": "pdf"}
WAIT_SECONDS_MAX = 3600.0  # for an export in the background
_LARGE = "create an export"  # the API asks for it when a month is too large to be answered at once


@click.command(name="export")
@click.argument("month", required=False)
@project_options
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="csv",
    show_default=True,
    help="Format of the file.",
)
@click.option(
    "--out",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.",
)
@click.option(
    "--until-month", metavar="MONTH", help="Last month, to export several months into one file."
)
@click.option(
    "--granularity",
    type=click.Choice(["day", "hour"]),
    default="day",
    show_default=True,
    help="Length of time per row.",
)
@click.option("--by-job", is_flag=True, help="Write one row per job, and one for idle time.")
@click.option("--wait", is_flag=True, help="Wait for an export that is made in the background.")
def export(
    data: str | None, project: str | None, month: str | None, kind: str, path: Path, **given: Any
) -> None:
    """Export the billed usage of MONTH (2026-03; default: the current month) to a file.

    The formats html and pdf are a printable invoice. All other formats have one row per node, price
    and day. The rows sum to the invoice's total. Large exports run in the background.
    """
    client = client_of(data, project)
    month = month or _present(client)
    if kind in _PRINTED:
        if given["until_month"] is not None:
            raise click.UsageError(
                f"--until-month cannot be used with {kind}, which covers one month"
            )
        place = (
            f"/console/{quote(client.target.project, safe='')}/invoices/"
            f"{quote(month, safe='')}/"
            f"{_PRINTED[kind]}"
        )
        _save(client, path, place, style="inline" if kind == "html" else None)
        return
    query = {"format": kind, "granularity": given["granularity"]}
    if given["until_month"] is None:
        place = f"{client.project_path()}/invoices/{quote(month, safe='')}:export"
        try:
            _save(client, path, place, **query, byJob="true" if given["by_job"] else "false")
            return
        except PodyardError as error:
            if error.code is not Code.FAILED_PRECONDITION or _LARGE not in error.message:
                raise
    body = {
        **query,
        "fromMonth": month,
        "untilMonth": given["until_month"] or month,
        "byJob": given["by_job"],
    }
    _in_background(client, body, path, wait=given["wait"])


def _present(client: Client) -> str:
    """The month that the invoice's preview is of."""
    return str(client.call("GET", f"{client.project_path()}/invoices:preview")["month"])


def _in_background(client: Client, body: dict[str, Any], path: Path, *, wait: bool) -> None:
    begun = client.call("POST", f"{client.project_path()}/exports", body)
    place = f"/podyard/v1/{begun['name']}"
    if not wait:
        say(f"It is made in the background: {begun['name']}. With --wait this command waits for it")
        return
    shown = [""]

    def has_ended(found: dict[str, Any]) -> bool:
        state = found["metadata"]
        text = f"{state['rowsDone']} of {state.get('rowsAll', 'many')} rows"
        if text != shown[0]:
            say(text)
        shown[0] = text
        return bool(found["done"])

    found = client.poll(
        lambda: client.call("GET", place), has_ended, WAIT_SECONDS_MAX, begun["name"]
    )
    if "error" in found:
        raise PodyardError(Code(found["error"]["code"]), found["error"]["message"])
    _save(client, path, f"{place}:download")


def _save(client: Client, path: Path, place: str, **query: str | None) -> None:
    """Writes an answer to a file under another name first: what is there stays until the new file
    is whole."""
    with client.stream(place, **query) as chunks:
        if path.exists() and not path.is_file():
            size = _write(path, chunks)  # a pipe or a terminal: nothing to be renamed
        else:
            target = path.resolve()
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            try:
                size = _write(part, chunks)
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
    say(f"Wrote {path} ({size} bytes)")


def _write(path: Path, chunks: Iterator[bytes]) -> int:
    size = 0
    with path.open("wb") as file:
        for chunk in chunks:
            size += file.write(chunk)
    return size


COMMANDS = (export,)
