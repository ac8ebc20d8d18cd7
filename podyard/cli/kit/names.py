"""Names of nodes and jobs for completion in a shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from podyard.base.errors import PodyardError
from podyard.cli.kit.client import Client, find, settings_of

SECONDS_MAX = 2.0  # a user waits for it at the Tab key
NAMES_MAX = 200  # a terminal shows no more at once


def complete_node(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    return _complete(
        context, incomplete, lambda client: client.pages(f"{client.zone_path('-')}/nodes", "nodes")
    )


def complete_zone(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    def read(client: Client) -> Iterable[dict[str, Any]]:
        project = client.zone_path("-").partition("/locations")[0]
        return client.pages(f"{project}/locations", "locations")

    return _complete(context, incomplete, read)


def complete_type(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    from podyard.hardware.accelerator_types import all_types  # late: Tab asks for one thing only

    names = (kind.name for kind in all_types() if kind.name.startswith(incomplete))
    return list(names)[:NAMES_MAX]


def complete_recipe(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    from podyard.engine.recipes.programs import PROGRAMS  # late, as above

    return [name for name in PROGRAMS if name.startswith(incomplete)]


def complete_job(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _complete(
        context, incomplete, lambda client: client.pages(f"{client.own_path('-')}/jobs", "jobs")
    )


# Of fields of a job, by their paths.
FIELD_NAMES: Mapping[
    str, Callable[[click.Context, click.Parameter, str], list[CompletionItem] | list[str]]
] = {
    "node": complete_node,
    "accelerator_type": complete_type,
    "recipe": complete_recipe,
}


def _complete(
    context: click.Context, incomplete: str, read: Callable[[Client], Iterable[dict[str, Any]]]
) -> list[str]:
    """The names that begin with what is typed. Nothing where no Podyard answers: Tab must not print
    an error."""
    try:
        target = find(settings_of(context.params.get("data")), context.params.get("project"))
        return list(matching(read(Client(target, timeout_seconds=SECONDS_MAX)), incomplete))
    except PodyardError:
        return []


def matching(items: Iterable[dict[str, Any]], incomplete: str) -> Iterator[str]:
    """Yield the ids that begin with the text, as many as a terminal shows."""
    count = 0
    for item in items:
        name = item["name"].rpartition("/")[2]
        if name.startswith(incomplete):
            yield name
            count += 1
            if count == NAMES_MAX:
                return
