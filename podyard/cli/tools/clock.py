"""`podyard clock`: platform time, and setting it where the platform's clock is virtual."""

from __future__ import annotations

import click

from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.options import client_of, output_option, target_options
from podyard.cli.kit.output import emit

# of waiting for an advance: a year with thousands of nodes is walked in minutes
ADVANCE_SECONDS_MAX = 3600.0

_COLUMNS = {
    "PLATFORM_TIME": "platformTime", "MODE": "mode", "RUNNING": "running", "RATE": "rate",
    "TARGET": "targetTime",
    "BEHIND_UTC_SECONDS": "lagSeconds",
}  # fmt: skip


@click.group(cls=CommandGroup, default="show")
def clock() -> None:
    """Show and control platform time."""


@clock.command()
@target_options
@output_option
def show(data: str | None, project: str | None, location: str | None, output: str) -> None:
    """Show platform time and the mode of its clock."""
    emit(_state(client_of(data, project, location)), output, _COLUMNS)


@clock.command(name="set-rate")
@click.argument("rate", type=click.FloatRange(min=0))
@target_options
@output_option
def set_rate(
    rate: float, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Set the rate of a virtual clock to RATE platform seconds per real second."""
    emit(
        client_of(data, project, location).call(
            "POST", "/podyard/v1/clock:setRate", {"rate": rate}
        ),
        output,
        _COLUMNS,
    )


@clock.command()
@target_options
@output_option
def pause(data: str | None, project: str | None, location: str | None, output: str) -> None:
    """Pause a virtual clock. An advance in progress ends at once."""
    emit(
        client_of(data, project, location).call("POST", "/podyard/v1/clock:setRate", {"rate": 0}),
        output,
        _COLUMNS,
    )


@clock.command()
@click.argument("duration", required=False)
@click.option(
    "--to", metavar="TIME", help="Advance to this time (RFC 3339) instead of by a duration."
)
@click.option(
    "--async",
    "asynchronous",
    is_flag=True,
    help="Return at once, before the clock has reached the target.",
)
@target_options
@output_option
def advance(
    duration: str | None,
    to: str | None,
    asynchronous: bool,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
) -> None:
    """Advance a virtual clock by DURATION (90s, 36h, 30d). Each timer on the way fires at its
    time."""
    if (duration is None) == (to is None):
        raise click.UsageError("specify either a DURATION such as 36h, or --to TIME")
    client = client_of(data, project, location)
    body = {"duration": duration} if duration is not None else {"time": to}
    operation = client.call("POST", "/podyard/v1/clock:advance", body)
    if not asynchronous:
        path = f"/podyard/v1/{operation['name']}"
        client.poll(
            lambda: client.call("GET", path),
            lambda found: bool(found["done"]),
            ADVANCE_SECONDS_MAX,
            "it",
        )
    emit(_state(client), output, _COLUMNS)


def _state(client: Client) -> dict[str, object]:
    return client.call("GET", "/podyard/v1/clock")


COMMANDS = {"clock": clock}
