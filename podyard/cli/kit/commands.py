"""The `podyard` command. Exit codes: 0, 1 (failed), 2 (usage, set-up), 130 (interrupted)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from podyard import __version__
from podyard.base.errors import BadRequest, PodyardError
from podyard.cli.kit import output
from podyard.cli.kit.command_names import routes
from podyard.cli.kit.command_names.groups import CommandGroup, unknown_text, with_hint
from podyard.cli.kit.command_table import ALIASES, COMMAND_GROUPS, ENTRIES

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class _Lazy(CommandGroup):
    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ENTRIES)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, routes.redirect(args, _Subcommands(self, ctx)))

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            names = [*ENTRIES, *ALIASES]
            raise click.UsageError(unknown_text("podyard", name, names, routes.hints(name)), ctx)
        return click.Group.resolve_command(self, ctx, args)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in ENTRIES:
            return None
        module = __import__(f"podyard.cli.{ENTRIES[name].module}", fromlist=["COMMANDS"])
        command: click.Command = module.COMMANDS[name]
        _add_examples(command, f"podyard {name}")
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.line) for name, entry in entries.items()])

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=entry.line)
            for name, entry in ENTRIES.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


class _Subcommands(Mapping[str, Sequence[str]]):
    """The names of the commands of each group, read when they are asked for."""

    def __init__(self, root: click.Group, context: click.Context) -> None:
        self._root = root
        self._context = context

    @override
    def __getitem__(self, name: str) -> Sequence[str]:
        group = self._root.get_command(self._context, name) if name in ENTRIES else None
        if not isinstance(group, click.Group):
            raise KeyError(name)
        return group.list_commands(self._context)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    @override
    def __len__(self) -> int:
        return len(ENTRIES)


_EXAMPLES = """\b
Examples:
  podyard up --detach
  podyard tpu create pod --accelerator-type v2-8 --version tpu-vm-base
  podyard job submit --recipe digits-cnn --node pod --wait
  podyard tpu --help
"""


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(__version__, prog_name="podyard")
def root() -> None:
    """Run and manage a Cloud TPU emulator."""


def run(argv: list[str], tools: Mapping[str, Any] | None = None) -> None:
    """Runs one command and exits. `tools`: what only the composition root may import, by the name
    of the command."""
    try:
        code = root.main(argv, prog_name="podyard", standalone_mode=False, obj=tools)
    except click.exceptions.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.UsageError) and (hint := with_hint(error)):
            output.say(hint)
        sys.exit(EXIT_USAGE)
    except PodyardError as error:
        output.say(f"ERROR: ({error.code.name}) {error.message}")
        for line in _explanations(error):
            output.say(line)
        sys.exit(EXIT_FAILED)
    sys.exit(code if isinstance(code, int) else 0)


def _add_examples(command: click.Command, path: str) -> None:
    """Puts the examples of a command, and of those below it, under their help."""
    from podyard.cli.kit.examples import EXAMPLES

    if path in EXAMPLES:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[path])
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            _add_examples(inner, f"{path} {name}")


def _explanations(error: PodyardError) -> list[str]:
    """Return what the details add to the message: where that is Google's text, ours is there."""
    found = [
        violation
        for item in error.details
        if isinstance(item, BadRequest)
        for violation in item.violations
    ]
    return [
        violation.description for violation in found if violation.description not in error.message
    ]
