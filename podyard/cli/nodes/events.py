"""`podyard events`: what happened to nodes, jobs and requests."""

from __future__ import annotations

from collections.abc import Iterable

import click

from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.names import complete_job
from podyard.cli.kit.options import client_of, project_options

_COLUMNS = {
    "AGE": "at|age",
    "KIND": "kind",
    "NAME": "id",
    "EVENT": "event",
    "STATE": "toState",
    "REASON": "reason|text",
}
_WIDE = {"TIME": "at", "FROM": "fromState", "ZONE": "zone", "ACTOR": "actor", "SEQ": "seq"}
EVENTS_SHOWN = 20
PAGE_EVENTS_MAX = 500


@click.command()
@click.argument("resource", required=False, shell_complete=complete_job)
@project_options
@lists(_COLUMNS, wide=_WIDE, row=lambda event: _row(event), limit=EVENTS_SHOWN)
def events(resource: str | None, data: str | None, project: str | None) -> Iterable[Item]:
    """List what happened in the project, newest first: only to the node or job RESOURCE, if it is
    given."""
    client = client_of(data, project)
    found = client.pages(
        f"{client.project_path()}/events", "events", newest="true", pageSize=PAGE_EVENTS_MAX
    )
    return (event for event in found if resource in (None, event["name"].rpartition("/")[2]))


def _row(event: Item) -> Item:
    parts = event["name"].split("/")
    zone = parts[parts.index("locations") + 1] if "locations" in parts else None
    return {**event, "id": parts[-1], "zone": zone, "reason": event["reason"] or None}


COMMANDS = {"events": events}
