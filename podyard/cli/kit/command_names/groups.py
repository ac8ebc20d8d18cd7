"""Groups of commands that know other names of their commands, and a command for the group alone."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import click
from typing_extensions import override

from podyard.cli.kit.command_names import routes

_HELP_OPTIONS = ("--help", "-h")


class CommandGroup(click.Group):
    """`default`: the command that the name of the group alone runs."""

    def __init__(self, *args: Any, default: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in _HELP_OPTIONS
        if self.default is not None and (not args or is_option):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        own = self.list_commands(ctx)
        name, rest = args[0], args[1:]
        verb = routes.verb_of(name, own, is_of_one=routes.has_name(rest))
        if verb is None and not name.startswith("-"):
            hints = routes.group_hints(ctx.command_path.removeprefix("podyard "), name)
            raise click.UsageError(unknown_text(ctx.command_path, name, own, hints), ctx)
        return super().resolve_command(ctx, [verb or name, *rest])


def unknown_text(path: str, name: str, commands: Iterable[str], hints: Iterable[str]) -> str:
    """Return the error of a command that does not exist: the nearest commands, or the help."""
    near = [f"{path} {word}" for word in difflib.get_close_matches(name, list(commands), 2, 0.6)]
    suggestions = list(dict.fromkeys([*hints, *near]))
    listed = f"`{path} --help` lists the commands"
    if not suggestions:
        return f"no command {name!r} in `{path}`: {listed}"
    return f"no command {name!r} in `{path}`: try `{'` or `'.join(suggestions)}`; {listed}"


def with_hint(error: click.UsageError) -> str | None:
    """Return the commands that are meant by a name behind a command that takes none."""
    path = error.ctx.command_path if error.ctx is not None else ""
    if "unexpected extra argument" not in error.message or path not in routes.WITHOUT_NAMES:
        return None
    return f"try `{'` or `'.join(routes.WITHOUT_NAMES[path])}`"
