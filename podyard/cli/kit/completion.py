"""`podyard completion`: scripts for shells, and the names of nodes and jobs that they complete."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

# the script sets it, and click answers instead of running the command
VARIABLE = "_PODYARD_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a completion script for SHELL. It completes commands, options, and names of nodes and
    jobs."""
    script = get_completion_class(shell)
    assert script is not None, "click knows these three"
    click.echo(
        script(click.get_current_context().find_root().command, {}, "podyard", VARIABLE).source()
    )


COMMANDS = {"completion": completion}
