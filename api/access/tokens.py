"""Podyard's own REST for credentials of people: tokens and invitations."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import Field, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.clock import NANOS_PER_SECOND, RealTime
from podyard.base.durations import parse_duration
from podyard.base.errors import invalid
from podyard.control.access import invitations, tokens
from podyard.domain import credential

router = APIRouter(route_class=deps.Route)
INVITATIONS = "/podyard/v1/projects/{project}/invitations"
Email = Annotated[StrictStr, Field(min_length=3, max_length=200, pattern=r"^[^\s@]+@[^\s@]+$")]
_WITH_MINTED: deps.Query = {
    "name": "withMinted",
    "description": "Whether to end the tokens, too, that its email has minted since.",
    "schema": {"type": "boolean"},
}
_PROJECT: deps.Query = {
    "name": "project",
    "description": "Only the tokens of this project (default: all that the caller may see).",
    "schema": {"type": "string"},
}


class TokenMessage(deps.Asked):
    """`ttl`: how long the token lasts, as in `2592000s`."""

    email: Email
    project: StrictStr
    roles: list[StrictStr] = Field(default_factory=list)
    ttl: StrictStr | None = None


class RenewMessage(deps.Asked):
    """`ttl`: how long the new token lasts."""

    ttl: StrictStr | None = None


class InvitationMessage(deps.Asked):
    email: Email
    roles: list[StrictStr] = Field(min_length=1)


class AcceptMessage(deps.Asked):
    code: StrictStr


class TokenAnswer(TypedDict):
    """Without `project` it is good for every one (the local owner's); without `expireTime` it does
    not expire.

    `lastUseTime` may be ten minutes older than the last use.
    """

    tokenId: str
    email: str
    project: NotRequired[str]
    mintedBy: NotRequired[str]
    state: str
    createTime: Timestamp
    expireTime: NotRequired[Timestamp]
    revokeTime: NotRequired[Timestamp]
    lastUseTime: NotRequired[Timestamp]


class RevokedToken(TokenAnswer):
    """`minted`: active tokens that the email has minted since it has this one."""

    minted: list[TokenAnswer]


class SecretToken(TokenAnswer):
    """`token` is shown this once."""

    token: str


class NewToken(SecretToken):
    """`roles`: those that were given with it."""

    roles: list[str]


class Tokens(TypedDict):
    tokens: list[TokenAnswer]


class InvitationAnswer(TypedDict):
    invitationId: str
    email: str
    project: str
    roles: list[str]
    invitedBy: str
    state: str
    createTime: Timestamp
    expireTime: Timestamp


class NewInvitation(InvitationAnswer):
    """`code` is shown this once."""

    code: str


class Invitations(TypedDict):
    invitations: list[InvitationAnswer]


@router.post("/podyard/v1/tokens", responses=deps.errors(404, 429))
def create_token(request: Request, body: Annotated[deps.Body, TokenMessage]) -> NewToken:
    caller = deps.principal(request)
    # The body names the project. A caller who may not create tokens in any project is refused
    # before it is read.
    if not any(caller.may("podyard.tokens.create", project) for project in caller.roles):
        caller.require("podyard.tokens.create", "*", "tokens")
    message = deps.parse(TokenMessage, body)
    what = (message.email, message.project, message.roles, _seconds(message.ttl))
    made, secret = deps.write(request, lambda uow: tokens.create(uow, caller, *what))
    return {**_token(made, made.created), "token": secret, "roles": message.roles}


@router.post("/podyard/v1/tokens:renew", responses=deps.errors(429))
def renew_token(request: Request, body: Annotated[deps.Body, RenewMessage]) -> SecretToken:
    """Create a token with the caller's email and project. The caller's own token works until it
    expires."""
    caller = deps.principal(request)
    seconds = _seconds(deps.parse(RenewMessage, body).ttl)
    made, secret = deps.write(request, lambda uow: tokens.renew(uow, caller, seconds))
    return {**_token(made, made.created), "token": secret}


@router.get("/podyard/v1/tokens", openapi_extra=deps.asks(_PROJECT))
def list_tokens(request: Request) -> Tokens:
    """Owners see the tokens of their projects, others their own. Nothing here shows a token's
    secret."""
    caller, now = deps.principal(request), deps.platform(request).clock.now()
    project = request.query_params.get("project")
    found = deps.read(request, lambda uow: tokens.list_tokens(uow, caller, project))
    return {"tokens": [_token(item, now) for item in found]}


@router.get("/podyard/v1/tokens/{token}")
def describe_token(request: Request, token: str) -> TokenAnswer:
    caller, now = deps.principal(request), deps.platform(request).clock.now()
    return _token(deps.read(request, lambda uow: tokens.describe(uow, caller, token)), now)


@router.post("/podyard/v1/tokens/{token}:revoke", openapi_extra=deps.asks(_WITH_MINTED))
def revoke_token(request: Request, token: str) -> RevokedToken:
    """End a token; requests under way may still finish. `withMinted=true` also ends the tokens that
    its email has minted since."""
    caller, now = deps.principal(request), deps.platform(request).clock.now()
    with_minted = request.query_params.get("withMinted") == "true"
    revoked, minted = deps.write(
        request, lambda uow: tokens.revoke(uow, caller, token, with_minted=with_minted)
    )
    return {**_token(revoked, now), "minted": [_token(item, now) for item in minted]}


@router.post(INVITATIONS, responses=deps.errors(429))
def create_invitation(
    request: Request, project: str, body: Annotated[deps.Body, InvitationMessage]
) -> NewInvitation:
    caller = deps.principal(request)
    caller.require("podyard.invitations.create", project, f"projects/{project}/invitations")
    message = deps.parse(InvitationMessage, body)
    made, code = deps.write(
        request, lambda uow: invitations.create(uow, caller, message.email, project, message.roles)
    )
    return {**_invitation(made, made.created), "code": code}


@router.get(INVITATIONS)
def list_invitations(request: Request, project: str) -> Invitations:
    caller, now = deps.principal(request), deps.platform(request).clock.now()
    found = deps.read(request, lambda uow: invitations.list_invitations(uow, caller, project))
    return {"invitations": [_invitation(item, now) for item in found]}


@router.post(f"{INVITATIONS}/{{invitation}}:revoke")
def revoke_invitation(request: Request, project: str, invitation: str) -> deps.Empty:
    caller = deps.principal(request)
    deps.write(request, lambda uow: invitations.revoke(uow, caller, project, invitation))
    return {}


@router.post("/podyard/v1/invitations:accept", responses=deps.errors(404, 409))
def accept_invitation(request: Request, body: Annotated[deps.Body, AcceptMessage]) -> SecretToken:
    """Accept an invitation by its code and return a token. No other credential is needed."""
    message = deps.parse(AcceptMessage, body)
    made, secret = deps.platform(request).database.run(
        lambda uow: invitations.accept(uow, message.code)
    )
    return {**_token(made, made.created), "token": secret}


def _seconds(ttl: str | None) -> float | None:
    if ttl is None:
        return None
    try:
        return parse_duration(ttl) / NANOS_PER_SECOND
    except ValueError as error:
        raise invalid(str(error), "ttl") from None


def _token(token: credential.Token, now: RealTime) -> TokenAnswer:
    shown: TokenAnswer = {
        "tokenId": token.token_id,
        "email": token.email,
        "state": token.state(now),
        "createTime": token.created.rfc3339(),
    }
    if token.project is not None:
        shown["project"] = token.project
    if token.minted_by is not None:
        shown["mintedBy"] = token.minted_by
    if token.expires is not None:
        shown["expireTime"] = token.expires.rfc3339()
    if token.revoked is not None:
        shown["revokeTime"] = token.revoked.rfc3339()
    if token.last_used is not None:
        shown["lastUseTime"] = token.last_used.rfc3339()
    return shown


def _invitation(invitation: credential.Invitation, now: RealTime) -> InvitationAnswer:
    return {
        "invitationId": invitation.invitation_id,
        "email": invitation.email,
        "project": invitation.project,
        "roles": list(invitation.roles),
        "invitedBy": invitation.invited_by,
        "state": invitation.state(now),
        "createTime": invitation.created.rfc3339(),
        "expireTime": invitation.expires.rfc3339(),
    }
