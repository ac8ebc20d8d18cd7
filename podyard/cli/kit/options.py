"""Options that many commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from podyard.cli.kit.client import Client, find
from podyard.cli.kit.client import settings_of as settings_of
from podyard.cli.kit.names import complete_zone
from podyard.cli.kit.output import FORMATS

Command = TypeVar("Command", bound=Callable[..., Any])


def data_option(command: Command) -> Command:
    text = "Data folder (default: PODYARD_DATA, else the platform's user data folder)."
    return click.option("--data", metavar="DIR", help=text)(command)


def quiet_option(command: Command) -> Command:
    """--yes and --quiet: the same, as gcloud and other command lines name it."""
    return click.option(
        "--yes", "-y", "--quiet", "-q", "quiet", is_flag=True, help="Skip confirmation."
    )(command)


FULL_ATTENTION = "causal=full"


def mfu_option(command: Command) -> Command:
    """--mfu: how MFU counts causal attention. MaxText counts half since its change 1988, and
    counted all before."""
    kind, text = click.Choice(["causal=half", FULL_ATTENTION]), "Count of causal attention in MFU."
    return click.option("--mfu", type=kind, default="causal=half", show_default=True, help=text)(
        command
    )


def output_option(command: Command) -> Command:
    kind = click.Choice(FORMATS)
    return click.option(
        "-o", "--output", type=kind, default="table", show_default=True, help="Output format."
    )(command)


def target_options(command: Command) -> Command:
    """--data --project --zone: which Podyard, project and location."""
    for option in (
        click.option(
            "--zone",
            "--location",
            "location",
            metavar="ZONE",
            help="Zone, for example us-central1-f.",
            shell_complete=complete_zone,
        ),
        click.option(
            "--project", metavar="PROJECT", help="Project (default: PODYARD_PROJECT, else demo)."
        ),
        data_option,
    ):
        command = option(command)
    return command


def project_options(command: Command) -> Command:
    """--data --project: which Podyard and project, where no location matters."""
    text = "Project (default: PODYARD_PROJECT, else demo)."
    return click.option("--project", metavar="PROJECT", help=text)(data_option(command))


def client_of(data: str | None, project: str | None = None, location: str | None = None) -> Client:
    """A client of the Podyard that the options name. Its connection ends with the command."""
    if data is not None:
        import os

        # The folder that is named wins over a Podyard that the environment points to.
        for name in ("PODYARD_URL", "PODYARD_TOKEN"):
            os.environ.pop(name, None)
    client = Client(find(settings_of(data), project, location))
    if (command := click.get_current_context(silent=True)) is not None:
        command.call_on_close(client.close)
    return client


def pairs(text: str | None, option: str) -> Mapping[str, str]:
    """`a=1,b=2` as a mapping; a usage error names the part that is not a pair."""
    found = {}
    for part in (text or "").split(","):
        if part:
            key, equals, value = part.partition("=")
            if not equals:
                raise click.UsageError(f"{option}: {part!r} is not KEY=VALUE")
            found[key] = value
    return found


def value_of(text: str) -> Any:
    """A number, true or false where it is one, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
