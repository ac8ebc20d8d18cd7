"""`podyard webhook set|list|delete|test|deliveries`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, project_options
from podyard.cli.kit.output import emit, say
from podyard.domain.webhook import WEBHOOK_EVENTS

TEST_SECONDS_MAX = 20.0  # a try takes 15 s at most, and a worker takes it on within a second
_COLUMNS = {
    "NAME": "name",
    "URL": "url|text",
    "EVENTS": "wanted|text",
    "WAITING": "waiting",
    "LAST": "said|text",
}
_DELIVERIES = {
    "DELIVERY": "delivery",
    "CREATED": "createTime",
    "EVENT": "event",
    "STATE": "state",
    "TRIES": "tries",
    "NEXT_TRY": "nextTry",
    "OUTCOME": "outcome|text",
}


@click.group(cls=CommandGroup, default="list")
def webhook() -> None:
    """Manage webhooks, which are told of events of nodes, jobs and queued resources."""


@webhook.command(name="set")
@click.argument("name")
@click.option(
    "--url", required=True, metavar="URL", help="Address that events are sent to by POST."
)
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice([*WEBHOOK_EVENTS, "*"]),
    metavar="EVENT",
    help="Event to send; may be repeated (default: job.succeeded, job.failed and job.recovering).",
)
@project_options
@output_option
def set_webhook(
    name: str, url: str, events: tuple[str, ...], data: str | None, project: str | None, output: str
) -> None:
    """Create or change the webhook NAME. Its secret is shown when it is created."""
    client = client_of(data, project)
    body = {"url": url, "events": list(events) or ["job.succeeded", "job.failed", "job.recovering"]}
    found = client.call("PUT", _path(client, name), body)
    if "secret" in found:
        say(f"Requests are signed with the secret {found['secret']}: it is shown only once")
    emit(
        _row(found) if output == "table" else found,
        output,
        {key: _COLUMNS[key] for key in ("NAME", "URL", "EVENTS")},
    )


@webhook.command(name="list")
@project_options
@lists(_COLUMNS, row=lambda found: _row(found))
def list_webhooks(data: str | None, project: str | None) -> Iterable[Item]:
    """List the webhooks with the result of their last delivery."""
    client = client_of(data, project)
    found: list[Item] = client.call("GET", f"{client.project_path()}/webhooks")["webhooks"]
    return found


@webhook.command(name="delete")
@click.argument("name")
@project_options
def delete_webhook(name: str, data: str | None, project: str | None) -> None:
    """Delete the webhook NAME with its deliveries."""
    client = client_of(data, project)
    client.call("DELETE", _path(client, name))
    say(f"Deleted webhook {name}")


@webhook.command(name="test")
@click.argument("name")
@project_options
@output_option
def send_test(name: str, data: str | None, project: str | None, output: str) -> None:
    """Send a test event to the webhook NAME, and show what is answered. The exit status is 1 if it
    is not accepted."""
    client = client_of(data, project)
    sent = client.call("POST", f"{_path(client, name)}:test", {})["delivery"]

    def look() -> dict[str, Any]:
        there = client.call("GET", f"{_path(client, name)}/deliveries")["deliveries"]
        return next((one for one in there if one["delivery"] == sent), {"tries": 0, "outcome": ""})

    found = client.poll(
        look, lambda one: bool(one["outcome"]), TEST_SECONDS_MAX, f"delivery {sent}"
    )
    emit(_delivery_row(found) if output == "table" else found, output, _DELIVERIES)
    if not found["delivered"]:
        raise PodyardError(Code.UNAVAILABLE, f"{name} did not accept the test: {found['outcome']}")


@webhook.command()
@click.argument("name")
@project_options
@lists(_DELIVERIES, row=lambda found: _delivery_row(found))
def deliveries(name: str, data: str | None, project: str | None) -> Iterable[Item]:
    """List the newest deliveries to the webhook NAME."""
    client = client_of(data, project)
    found: list[Item] = client.call("GET", f"{_path(client, name)}/deliveries")["deliveries"]
    return found


def _path(client: Client, name: str) -> str:
    return f"{client.project_path()}/webhooks/{quote(name, safe='')}"


def _row(found: dict[str, Any]) -> dict[str, Any]:
    last = found.get("last")
    said = ": ".join(part for part in (_state(last), last["outcome"]) if part) if last else None
    return {**found, "wanted": ", ".join(found["events"]), "said": said}


def _delivery_row(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "state": _state(found)}


def _state(found: dict[str, Any]) -> str:
    return "delivered" if found["delivered"] else "waiting" if "nextTry" in found else "given up"


COMMANDS = {"webhook": webhook}
