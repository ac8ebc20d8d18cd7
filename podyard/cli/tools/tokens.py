"""`podyard auth token|invitation|accept`: credentials of people."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import click

from podyard.base.durations import duration_text, parse_duration
from podyard.cli.kit.client import Client, Target, url_of
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import (
    client_of,
    data_option,
    output_option,
    settings_of,
    target_options,
)
from podyard.cli.kit.output import emit, say

_TOKENS = "/podyard/v1/tokens"
_COLUMNS = {
    "TOKEN_ID": "tokenId",
    "EMAIL": "email",
    "PROJECT": "project",
    "STATE": "state",
    "EXPIRES": "expireTime",
    "LAST_USED": "lastUseTime",
    "MINTED_BY": "mintedBy",
}
_NEW = {"EMAIL": "email", "PROJECT": "project", "EXPIRES": "expireTime", "TOKEN": "token"}
_INVITATION = {
    "INVITATION_ID": "invitationId",
    "EMAIL": "email",
    "ROLES": "roles",
    "STATE": "state",
    "EXPIRES": "expireTime",
    "INVITED_BY": "invitedBy",
}
_ROLE = (
    "tpu.viewer, tpu.admin, jobs.runner, storage.objectUser, billing.viewer or owner; may "
    "be repeated."
)


_expires_in = click.option(
    "--expires-in",
    metavar="DURATION",
    help="Lifetime of the token, for example 30d (default: 90d; at most 365d).",
)


@click.group(cls=CommandGroup)
def token() -> None:
    """Manage tokens, which work in one project until they expire or are revoked."""


@token.command(name="create")
@click.argument("email")
@target_options
@click.option(
    "--role",
    "roles",
    multiple=True,
    help=f"{_ROLE} Required if EMAIL has no role in the project yet.",
)
@_expires_in
@output_option
def create_token(
    email: str,
    data: str | None,
    project: str | None,
    location: str | None,
    roles: tuple[str, ...],
    expires_in: str | None,
    output: str,
) -> None:
    """Create a token for EMAIL with roles in the project. It is shown only once."""
    client = client_of(data, project, location)
    body = {
        "email": email,
        "project": client.target.project,
        "roles": list(roles),
        **_ttl(expires_in),
    }
    emit(client.call("POST", _TOKENS, body), output, {**_NEW, "ROLES": "roles"})


@token.command(name="renew")
@target_options
@_expires_in
@output_option
def renew_token(
    data: str | None, project: str | None, location: str | None, expires_in: str | None, output: str
) -> None:
    """Create a new token with your roles in the same project. It is shown only once.

    The old token works until it expires.
    """
    client = client_of(data, project, location)
    emit(client.call("POST", f"{_TOKENS}:renew", _ttl(expires_in)), output, _NEW)


@token.command(name="list")
@target_options
@click.option(
    "--all-projects", is_flag=True, help="List the tokens of every project that you may see."
)
@lists(_COLUMNS)
def list_tokens(
    data: str | None, project: str | None, location: str | None, all_projects: bool
) -> Iterable[Item]:
    """List the tokens of the project: all of them for its owners, your own otherwise."""
    client = client_of(data, project, location)
    query = {} if all_projects else {"project": client.target.project}
    found: list[Item] = client.call("GET", _TOKENS, **query)["tokens"]
    return found


@token.command(name="describe")
@click.argument("token_id")
@target_options
@output_option
def describe_token(
    token_id: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Show a token: its email, creator, expiry and last use."""
    found = client_of(data, project, location).call("GET", f"{_TOKENS}/{quote(token_id, safe='')}")
    emit(found, "yaml" if output == "table" else output)


@token.command(name="revoke")
@click.argument("token_id")
@click.option(
    "--with-minted", is_flag=True, help="Also revoke the tokens that its email has minted since."
)
@target_options
def revoke_token(
    token_id: str, with_minted: bool, data: str | None, project: str | None, location: str | None
) -> None:
    """Revoke a token."""
    client, path = client_of(data, project, location), f"{_TOKENS}/{quote(token_id, safe='')}"
    answer = client.call("POST", f"{path}:revoke", withMinted="true" if with_minted else None)
    email = answer["email"]
    say(f"revoked token [{token_id}] of [{email}]")
    if minted := [str(one.get("tokenId")) for one in answer.get("minted", ())]:
        say(
            f"{email} has minted tokens since that still work: {', '.join(minted)}\n"
            f"Revoke them, too: podyard auth token revoke {token_id} --with-minted"
        )


@click.group(cls=CommandGroup)
def invitation() -> None:
    """Invite people to a project. They accept with a code and get a token."""


@invitation.command(name="create")
@click.argument("email")
@target_options
@click.option("--role", "roles", multiple=True, required=True, help=_ROLE)
@output_option
def create_invitation(
    email: str,
    data: str | None,
    project: str | None,
    location: str | None,
    roles: tuple[str, ...],
    output: str,
) -> None:
    """Invite EMAIL to the project. The code is shown only once and expires after 7 days."""
    client = client_of(data, project, location)
    found = client.call("POST", _invitations(client), {"email": email, "roles": list(roles)})
    emit(
        found,
        output,
        {**{name: _INVITATION[name] for name in ("EMAIL", "ROLES", "EXPIRES")}, "CODE": "code"},
    )
    say(
        f"send {email} this command: PODYARD_URL={client.target.url} podyard auth accept "
        f"{found['code']}"
    )


@invitation.command(name="list")
@target_options
@lists(_INVITATION)
def list_invitations(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List the project's invitations."""
    client = client_of(data, project, location)
    found: list[Item] = client.call("GET", _invitations(client))["invitations"]
    return found


@invitation.command(name="revoke")
@click.argument("invitation_id")
@target_options
def revoke_invitation(
    invitation_id: str, data: str | None, project: str | None, location: str | None
) -> None:
    """Revoke an invitation that has not been accepted."""
    client = client_of(data, project, location)
    client.call("POST", f"{_invitations(client)}/{quote(invitation_id, safe='')}:revoke")
    say(f"revoked invitation [{invitation_id}]")


@click.command()
@click.argument("code")
@data_option
@output_option
def accept(code: str, data: str | None, output: str) -> None:
    """Accept an invitation and get a token for its project. It is shown only once."""
    client = Client(Target(url_of(settings_of(data)), "", "", ""))
    found = client.call("POST", "/podyard/v1/invitations:accept", {"code": code})
    emit(found, output, _NEW)
    say(
        f"to use it: export PODYARD_URL={client.target.url} PODYARD_TOKEN=TOKEN "
        f"PODYARD_PROJECT={found['project']}"
    )


def _invitations(client: Client) -> str:
    return f"{client.project_path()}/invitations"


def _ttl(text: str | None) -> dict[str, str]:
    """The field of the API's message, if it is asked for."""
    try:
        return {} if text is None else {"ttl": duration_text(parse_duration(text))}
    except ValueError as error:
        raise click.UsageError(f"--expires-in: {error}") from None
