"""`podyard auth key|api-key`: credentials for programs, as Google's libraries use them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import click

from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, target_options
from podyard.cli.kit.output import emit, say

_ROLE_HELP = "Role in the project; may be repeated (default: tpu.admin if EMAIL has no role there)."
_COLUMNS = {"KEY_ID": "keyId", "EMAIL": "email", "PROJECT": "projectId", "CREATED": "createTime"}


@click.group(cls=CommandGroup)
def key() -> None:
    """Manage keys of service accounts, for gcloud and Google's libraries."""


@key.command(name="create")
@click.argument("email", required=False)
@click.option(
    "--service-account", metavar="NAME", help="Short for NAME@PROJECT.iam.gserviceaccount.com."
)
@click.option("--role", "roles", multiple=True, help=_ROLE_HELP)
@click.option(
    "--output",
    "-o",
    "path",
    metavar="FILE",
    help="Write the key to FILE with mode 0600 (default: stdout).",
)
@target_options
def create_key(
    email: str | None,
    service_account: str | None,
    roles: tuple[str, ...],
    path: str | None,
    data: str | None,
    project: str | None,
    location: str | None,
) -> None:
    """Create a key for EMAIL. It is shown only once; use it with
    GOOGLE_APPLICATION_CREDENTIALS=FILE."""
    if (email is None) == (service_account is None):
        raise click.UsageError("specify either EMAIL or --service-account NAME")
    client = client_of(data, project, location)
    account = email or f"{service_account}@{client.target.project}.iam.gserviceaccount.com"
    target = None if path is None else _new_file(path)
    try:
        found = client.call("POST", _keys_of(client, account), {"roles": list(roles)})
    except BaseException:
        if target is not None:
            Path(target).unlink()
        raise
    text = json.dumps(found, indent=2)
    if target is None:
        click.echo(text)
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")
        say(f"created key [{found['private_key_id']}] of [{account}] as [{path}]")


@key.command(name="list")
@click.argument("email", default="-")
@target_options
@lists(_COLUMNS)
def list_keys(
    email: str, data: str | None, project: str | None, location: str | None
) -> Iterable[Item]:
    """List the keys of EMAIL, or of every account of the project."""
    client = client_of(data, project, location)
    found: list[Item] = client.call("GET", _keys_of(client, email))["keys"]
    return found


@key.command(name="delete")
@click.argument("key_id")
@target_options
def delete_key(key_id: str, data: str | None, project: str | None, location: str | None) -> None:
    """Delete a key and revoke the access tokens made with it."""
    client = client_of(data, project, location)
    client.call("DELETE", f"{_keys_of(client, '-')}/{quote(key_id, safe='')}")
    say(f"deleted key [{key_id}]")


@click.group(cls=CommandGroup, name="api-key")
def api_key() -> None:
    """Manage API keys, which clients send in `?key=` or the header x-goog-api-key."""


@api_key.command(name="create")
@click.argument("email")
@click.option("--role", "roles", multiple=True, help=_ROLE_HELP)
@target_options
@output_option
def create_api_key(
    email: str,
    roles: tuple[str, ...],
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
) -> None:
    """Create an API key that acts as EMAIL in the project. It is shown only once."""
    client = client_of(data, project, location)
    body = {"email": email, "roles": list(roles)}
    found = client.call("POST", f"{client.project_path()}/apiKeys", body)
    emit(found, output, {**_COLUMNS, "KEY": "key"})


@api_key.command(name="list")
@target_options
@lists(_COLUMNS)
def list_api_keys(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List the API keys of the project."""
    client = client_of(data, project, location)
    found: list[Item] = client.call("GET", f"{client.project_path()}/apiKeys")["keys"]
    return found


@api_key.command(name="delete")
@click.argument("key_id")
@target_options
def delete_api_key(
    key_id: str, data: str | None, project: str | None, location: str | None
) -> None:
    """Delete an API key."""
    client = client_of(data, project, location)
    client.call("DELETE", f"{client.project_path()}/apiKeys/{quote(key_id, safe='')}")
    say(f"deleted API key [{key_id}]")


def _keys_of(client: Client, email: str) -> str:
    return f"{client.project_path()}/serviceAccounts/{quote(email, safe='@')}/keys"


def _new_file(path: str) -> str:
    """The file, made now and for its owner only, so that no key is made that cannot be written."""
    found = str(Path(path).expanduser())
    try:
        os.close(os.open(found, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise click.UsageError(f"--output: cannot make {path}: {error.strerror}") from None
    return found
