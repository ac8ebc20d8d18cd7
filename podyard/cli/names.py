"""Names of nodes and jobs for completion in a shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from podyard.base.errors import PodyardError
from podyard.cli.client import Client, find
from podyard.cli.options import settings_of

SECONDS_MAX = 2.0  # a user waits for it at the Tab key
NAMES_MAX = 200  # a terminal shows no more at once


def complete_node(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    return _complete(
        context, incomplete, lambda client: client.pages(f"{client.zone_path('-')}/nodes", "nodes")
    )


def complete_job(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _complete(
        context, incomplete, lambda client: client.pages(f"{client.own_path('-')}/jobs", "jobs")
    )


def _complete(
    context: click.Context, incomplete: str, read: Callable[[Client], Iterable[dict[str, Any]]]
) -> list[str]:
    """The names that begin with what is typed. Nothing where no Podyard answers: Tab must not print
    an error."""
    try:
        target = find(settings_of(context.params.get("data")), context.params.get("project"))
        return list(_matching(read(Client(target, timeout_seconds=SECONDS_MAX)), incomplete))
    except PodyardError:
        return []


def _matching(items: Iterable[dict[str, Any]], incomplete: str) -> Iterator[str]:
    count = 0
    for item in items:
        name = item["name"].rpartition("/")[2]
        if name.startswith(incomplete):
            yield name
            count += 1
            if count == NAMES_MAX:
                return
