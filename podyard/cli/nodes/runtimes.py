"""`podyard runtime list|install|remove`: the software that runtime versions have on this
machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from podyard.base.clock import OsClock
from podyard.base.errors import failed_precondition, invalid
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.output import say
from podyard.cli.kit.terminal import progress
from podyard.hardware.runtime_versions import RUNTIME_VERSIONS, TENSORFLOW_VERSIONS
from podyard.hardware.software import SOFTWARE, Software, SoftwareChoice, find_software, software_of
from podyard.programs import environments

_COLUMNS = {"VERSION": "version", "SOFTWARE": "software|text", "STATE": "state", "WHY": "why|text"}


@click.group(cls=CommandGroup, default="list")
def runtime() -> None:
    """Software of runtime versions: list, install, remove."""


@runtime.command(name="list")
@lists(_COLUMNS)
def list_runtimes() -> Iterable[Item]:
    """List runtime versions with the software that each has on this machine."""
    folder = environments.default_folder()
    made = environments.list_made(folder)
    python = sys.version_info.minor
    choices = [
        software_of(version, python) for version in (*RUNTIME_VERSIONS, *TENSORFLOW_VERSIONS)
    ]
    choices += [SoftwareChoice(item.name, item) for item in SOFTWARE if item.serves(python)]
    rows = []
    for choice in choices:
        state = (
            "-"
            if choice.software is None
            else "installed"
            if choice.software in made
            else "not installed"
        )
        title = "-" if choice.software is None else choice.software.title
        rows.append(
            {"version": choice.version, "software": title, "state": state, "why": choice.why}
        )
    return rows


@runtime.command()
@click.argument("version")
def install(version: str) -> None:
    """Install the software of a runtime version, for all hosts and `podyard run --runtime`.

    VERSION is a runtime version, a framework (jax, tensorflow, pytorch), or a framework with its
    release.

    Example: podyard runtime install tpu-vm-tf-2.16.1-pjrt
    """
    choice, path = make(version)
    say(f"podyard runtime: {choice.sentence()}, in {path}")


@runtime.command()
@click.argument("version")
def remove(version: str) -> None:
    """Remove the software of a runtime version. Programs that run in it will fail.

    Example: podyard runtime remove tensorflow-2.21.0
    """
    software = _find(version)[1]
    if not environments.remove(software, environments.default_folder()):
        raise failed_precondition(f"{software.title} is not installed")


def make(version: str) -> tuple[SoftwareChoice, Path]:
    """Its environment, which is made with progress on stderr if there is none. Raises
    INVALID_ARGUMENT for a version without one, FAILED_PRECONDITION if it cannot be made."""
    choice, software = _find(version)
    try:
        path = environments.make(software, environments.default_folder(), OsClock(), progress)
    except OSError as error:
        raise failed_precondition(str(error)) from error
    finally:
        progress("")
    return choice, path


def _find(version: str) -> tuple[SoftwareChoice, Software]:
    try:
        choice = find_software(version, sys.version_info.minor)
    except LookupError as error:
        raise invalid(str(error.args[0])) from error
    assert choice.software is not None
    return choice, choice.software


COMMANDS: Mapping[str, click.Command] = {"runtime": runtime}
