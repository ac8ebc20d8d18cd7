"""Every command of the command line, and which of them a line runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import click

from podyard.cli.kit.commands import root


def walk(
    command: click.Command = root, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    if path:
        yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from walk(inner, (*path, name))


def find(argv: Sequence[str]) -> tuple[str, click.Command, list[str]]:
    """The command of this line, its path, and what is left for it."""
    command: click.Command = root
    path, rest = list[str](), list(argv)
    while isinstance(command, click.Group) and rest:
        inner = command.get_command(click.Context(command), rest[0])
        if inner is None:
            break
        command, path, rest = inner, [*path, rest[0]], rest[1:]
    return " ".join(path), command, rest


def parse(argv: Sequence[str]) -> str:
    """The path of the command that this line runs; UsageError for what the command does not
    take."""
    path, command, rest = find(argv)
    with contextlib.suppress(click.exceptions.Exit):  # --help
        command.make_context(path.rpartition(" ")[2], rest).close()
    return path
