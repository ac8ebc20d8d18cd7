"""`podyard calls`: what clients have asked for that Podyard does not serve."""

from __future__ import annotations

import click

from podyard.cli.options import client_of, output_option, target_options
from podyard.cli.output import emit

_COLUMNS = {"LAST": "lastTime", "CALLS": "calls", "METHOD": "method", "HOST": "host", "PATH": "path"}


@click.command()
@target_options
@click.option("--unserved", is_flag=True, required=True, help="Only calls that were refused with 501.")
@output_option
def calls(data: str | None, project: str | None, location: str | None, unserved: bool, output: str) -> None:
    """List the calls that clients made to Google's APIs."""
    assert unserved  # the only kind that is recorded
    client = client_of(data, project, location)
    emit(client.call("GET", "/podyard/v1/unservedCalls")["calls"], output, _COLUMNS)


COMMANDS = {"calls": calls}
