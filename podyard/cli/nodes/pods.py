"""`podyard pods`: how full the pods are, a map of each, and what would have to move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import click

from podyard.base.ids import letters_of
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, target_options
from podyard.cli.kit.output import emit
from podyard.cli.kit.tables import table

_COLUMNS = {
    "POD": "pod", "ZONE": "location", "GENERATION": "generation", "SHAPE": "shape",
    "CHIPS": "chips",
    "HELD": "chipsHeld", "BROKEN": "chipsBroken", "FRAGMENTED": "fragmentation",
    "LARGEST_FREE": "largestFreeType",
}  # fmt: skip
FREE, BROKEN, ANOTHERS = ".", "x", "#"


@click.group(cls=CommandGroup, default="list")
def pods() -> None:
    """Show pods and the slices in them."""


@pods.command(name="list")
@target_options
@lists(_COLUMNS)
def list_pods(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List pods in all zones. --zone selects one zone."""
    client = client_of(data, project, location)
    found = client.call("GET", f"{client.project_path()}/pods")["pods"]
    return [pod for pod in found if location in (None, pod["location"])]


@pods.command()
@click.argument("pod")
@target_options
@output_option
def show(
    pod: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Show a map of a pod's chips, with a letter for each of your slices."""
    client = client_of(data, project, location)
    found = client.call("GET", f"{client.project_path()}/pods/{quote(pod, safe='')}")
    if output != "table":
        emit(found, output)
        return
    letters = [
        letters_of(index) if "node" in item else ANOTHERS
        for index, item in enumerate(found["slices"])
    ]
    click.echo(_map(found, letters))
    rows = [
        [
            letter,
            item["node"].rpartition("/")[2],
            item["acceleratorType"],
            item["usage"],
            item["placedTime"],
        ]
        for letter, item in zip(letters, found["slices"], strict=True)
        if "node" in item
    ]
    if rows:
        click.echo("\n" + table(["SLICE", "NODE", "TYPE", "USAGE", "SINCE"], rows))
    click.echo(f"\n{FREE} free   {ANOTHERS} another project   {BROKEN} broken")


@pods.command()
@click.argument("pod")
@click.argument("accelerator_type")
@target_options
@output_option
def defragment(
    pod: str,
    accelerator_type: str,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
) -> None:
    """Show which slices would have to move to make room for a slice of this type.

    Advice only. Podyard never moves a running slice."""
    client = client_of(data, project, location)
    path = f"{client.project_path()}/pods/{quote(pod, safe='')}:defragment"
    found = client.call("GET", path, acceleratorType=accelerator_type)
    if output != "table":
        emit(found, output)
    elif not found["possible"]:
        click.echo(f"no way was found to make room for {accelerator_type}: too few chips are free")
    elif not found["moves"]:
        click.echo(f"{accelerator_type} fits now")
    else:
        rows = [
            {**move, "name": move.get("node", "another project's").rpartition("/")[2]}
            for move in found["moves"]
        ]
        emit(
            rows,
            output,
            {"NODE": "name", "TYPE": "acceleratorType", "FROM": "origin", "TO": "toOrigin"},
        )


def _map(found: dict[str, Any], letters: list[str]) -> str:
    """A line for each row of chips; the layers of a third dimension one below the other."""
    columns, rows, *layers = (int(extent) for extent in found["shape"].split("x"))
    count = columns * rows * (layers[0] if layers else 1)
    wide = max(map(len, (*letters, FREE)))
    cells = [FREE] * count
    for letter, item in zip(letters, found["slices"], strict=True):
        _fill(cells, int(item["chips"], 16), letter)
    _fill(cells, int(found["brokenChips"], 16), BROKEN)
    lines = []
    for row in range(count // columns):
        if layers and row % rows == 0:
            lines.append(f"{'' if row == 0 else chr(10)}z={row // rows}")
        lines.append(
            " ".join(
                cell.ljust(wide) for cell in cells[row * columns : (row + 1) * columns]
            ).rstrip()
        )
    return "\n".join(lines)


def _fill(cells: list[str], chips: int, text: str) -> None:
    while chips:
        lowest = chips & -chips
        cells[lowest.bit_length() - 1] = text
        chips ^= lowest


COMMANDS = {"pods": pods}
