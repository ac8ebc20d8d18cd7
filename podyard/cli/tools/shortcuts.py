"""`podyard nodes|jobs|logs`: the words that people try first, for `tpu list`, `job list` and `job
logs`."""

from __future__ import annotations

import copy

import click

from podyard.cli.jobs.jobs import list_jobs
from podyard.cli.jobs.logs import logs
from podyard.cli.nodes.tpu import list_nodes


def _rename(command: click.Command, name: str) -> click.Command:
    """The same command under another name; its examples are its own."""
    found = copy.copy(command)
    found.name = name
    return found


COMMANDS = {
    "nodes": _rename(list_nodes, "nodes"),
    "jobs": _rename(list_jobs, "jobs"),
    "logs": _rename(logs, "logs"),
}
