"""`podyard top`: running jobs, chips in use and cost, live."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import click

from podyard.base.clock import OsClock
from podyard.base.durations import duration_for_people
from podyard.base.money import money_text
from podyard.cli.jobs.logs import ANY_ZONE, FINAL_STATES
from podyard.cli.jobs.progress import steps_text
from podyard.cli.kit import terminal
from podyard.cli.kit.client import Client
from podyard.cli.kit.options import client_of, project_options
from podyard.cli.kit.tables import columns_of, draw
from podyard.hardware import accelerator_types

REFRESH_SECONDS = 2.0
_COLUMNS = {
    "JOB": "id",
    "NODE": "node",
    "TYPE": "acceleratorType",
    "STATE": "state",
    "STEPS": "steps|count",
    "STEPS/S": "stepsPerSecond",
    "LEFT": "remainingSeconds|seconds",
    "COST": "cost|usd",
}


@click.command()
@project_options
@click.option("--once", is_flag=True, help="Show it once, as a pipe gets it.")
def top(data: str | None, project: str | None, once: bool) -> None:
    """Show running and waiting jobs, chips in use and cost. A terminal is refreshed every 2
    seconds, until Ctrl-C."""
    client, clock = client_of(data, project), OsClock()
    while True:
        text = _screen(client)
        if once or not sys.stdout.isatty():
            click.echo(text)
            return
        terminal.redraw(text)
        clock.sleep(REFRESH_SECONDS)


def _screen(client: Client) -> str:
    nodes = list(client.pages(f"{client.zone_path('-')}/nodes", "nodes"))
    jobs = [_row(job) for job in _live(client.pages(f"{client.own_path(ANY_ZONE)}/jobs", "jobs"))]
    jobs.sort(key=lambda job: (job["state"] != "RUNNING", job["id"]))
    head = "   ".join((f"project {client.target.project}", *_sums(nodes, jobs)))
    return (
        f"{head}\n\n{draw(columns_of(_COLUMNS), jobs)}"
        if jobs
        else f"{head}\n\nNo job is running or waiting."
    )


def _live(jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [job for job in jobs if job["state"] not in FINAL_STATES]


def _row(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "id": job["name"].rpartition("/")[2], "steps": steps_text(job)}


def _sums(nodes: Sequence[dict[str, Any]], jobs: Sequence[dict[str, Any]]) -> list[str]:
    """Return what runs, how many chips it has, and what the jobs have cost so far."""
    ready = [node for node in nodes if node["state"] == "READY"]
    chips = {node["name"].rpartition("/")[2]: _chips(node) for node in ready}
    running = [job for job in jobs if job["state"] == "RUNNING"]
    busy = sum(chips.get(name, 0) for name in {job["node"] for job in running})
    found = [
        f"{len(ready)} of {len(nodes)} nodes ready",
        f"{busy} of {sum(chips.values())} chips busy",
        f"{len(running)} running, {len(jobs) - len(running)} waiting",
    ]
    costs = [job["cost"] for job in running if "cost" in job]
    if costs:
        found.append(f"{money_text(sum(map(Decimal, costs), Decimal(0)))} so far")
    left = [job["remainingSeconds"] for job in running if "remainingSeconds" in job]
    if left:
        found.append(f"first ends in {duration_for_people(min(left))}")
    return found


def _chips(node: dict[str, Any]) -> int:
    return accelerator_types.parse(node["acceleratorType"]).chip_count


COMMANDS = {"top": top}
