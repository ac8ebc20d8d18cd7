"""The `podyard` command. Exit codes: 0, 1 (failed), 2 (usage, set-up), 130 (interrupted)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
from typing_extensions import override

from podyard import __version__
from podyard.base.errors import BadRequest, PodyardError
from podyard.cli import output

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# Command -> module that holds it: a module is imported only when its command runs, so that `up` starts at once.
_MODULES = {
    "up": "stack", "down": "stack", "status": "stack", "env": "env", "run": "env", "ssh": "ssh_setup", "calls": "calls",
    "tpu": "tpu", "job": "jobs", "sweep": "sweeps", "bill": "bill", "demo": "demo", "explain": "explain",
    "budget": "budget", "commitment": "commitment",
    "qr": "queue", "reservation": "queue", "queue": "queue",
    "storage": "storage", "tensorboard": "tensorboard",
    "estimate": "estimate", "plan": "plan", "predict": "predict",
    "hardware": "admin", "project": "admin", "auth": "admin", "agents": "admin", "clock": "clock", "fault": "faults",
    "pods": "pods", "price": "price", "runtime": "runtimes", "simulate": "simulate", "fsck": "fsck",
}  # fmt: skip


class _Lazy(click.Group):
    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = __import__(f"podyard.cli.{_MODULES[cmd_name]}", fromlist=["COMMANDS"])
        command: click.Command = module.COMMANDS[cmd_name]
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="podyard")
def root() -> None:
    """Run and manage a Cloud TPU emulator."""


def run(argv: list[str], tools: Mapping[str, Any] | None = None) -> None:
    """Runs one command and exits. `tools`: what only the composition root may import, by the name of the command."""
    try:
        code = root.main(argv, prog_name="podyard", standalone_mode=False, obj=tools)
    except click.exceptions.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except PodyardError as error:
        output.say(f"ERROR: ({error.code.name}) {error.message}")
        for line in _explanations(error):
            output.say(line)
        sys.exit(EXIT_FAILED)
    sys.exit(code if isinstance(code, int) else 0)


def _explanations(error: PodyardError) -> list[str]:
    """What the details add to the message: where that is Google's text, ours is there."""
    found = [violation for item in error.details if isinstance(item, BadRequest) for violation in item.violations]
    return [violation.description for violation in found if violation.description not in error.message]
