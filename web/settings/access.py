"""Roles of a project: tokens and invitations, with the forms that make and end them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.durations import parse_duration
from podyard.base.errors import PodyardError, invalid
from podyard.control.access import identity, invitations, tokens
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import Invitation, Token
from podyard.domain.principal import PLATFORM_OWNER, ROLE_PERMISSIONS
from podyard.http import context
from podyard.web.kit.commands import Command
from podyard.web.kit.render import (
    ConsoleRoute,
    form_of,
    page,
    project_url,
    see_other,
    see_other_with_notice,
)

ROLES = [role for role in ROLE_PERMISSIONS if role != PLATFORM_OWNER]

router = APIRouter(prefix="/console/{project}/settings", route_class=ConsoleRoute)


@router.get("")
def settings(project: str) -> Response:
    return see_other(project_url(project, "settings", "access"))


@router.get("/access")
def show(request: Request, project: str) -> Response:
    return _page(request, project, {})


@router.post("/access/{action}")
async def act(request: Request, project: str, action: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _act(request, project, action, fields))


def _act(request: Request, project: str, action: str, fields: Mapping[str, str]) -> Response:
    caller, url = context.principal(request), project_url(project, "settings", "access")
    email, role = fields.get("email", "").strip(), fields.get("role", "")
    try:
        if action == "token":
            seconds = _seconds(fields.get("ttl", "").strip())
            roles = [role] if role else []
            _, secret = context.write(
                request, lambda uow: tokens.create(uow, caller, email, project, roles, seconds)
            )  # fmt: skip
            return _page(request, project, {}, secret=secret, secret_of=f"Token of {email}")
        if action == "invite":
            _, code = context.write(
                request, lambda uow: invitations.create(uow, caller, email, project, [role])
            )
            said = f"PODYARD_URL={base_url(request)} podyard auth accept {code}"
            return _page(request, project, {}, secret=said, secret_of=f"{email} runs this once")
        if action == "revoke-token":
            token_id, with_minted = fields.get("id", ""), "with_minted" in fields
            _, minted = context.write(
                request, lambda uow: tokens.revoke(uow, caller, token_id, with_minted=with_minted)
            )
            return see_other_with_notice(url, _revoked_text(minted))
        if action == "revoke-invitation":
            context.write(
                request, lambda uow: invitations.revoke(uow, caller, project, fields.get("id", ""))
            )
            return see_other_with_notice(url, "The invitation is revoked.")
        raise invalid(f"unknown action {action!r}", "action")
    except PodyardError as error:
        return _page(request, project, fields, error=error)


def _revoked_text(minted: Sequence[Token]) -> str:
    if not minted:
        return "The token is revoked."
    names = ", ".join(token.token_id for token in minted)
    return f"The token is revoked. Its email has minted tokens since that still work: {names}."


def base_url(request: Request) -> str:
    """Return where clients of the reader find this server."""
    return context.platform(request).settings.public_url or str(request.base_url).rstrip("/")


def _seconds(text: str) -> float | None:
    try:
        return parse_duration(text) / 1e9 if text else None
    except ValueError as error:
        raise invalid(str(error), "ttl") from None


def _page(
    request: Request,
    project: str,
    fields: Mapping[str, str],
    *,
    secret: str = "",
    secret_of: str = "",
    error: PodyardError | None = None,
) -> Response:
    """`secret`: shown once, on the page that answers; no address and no log has it."""
    caller = context.principal(request)

    def body(uow: UnitOfWork) -> tuple[list[Token], list[Invitation]]:
        identity.project_row(uow, project)
        invites = caller.may("podyard.invitations.list", project)
        found = invitations.list_invitations(uow, caller, project) if invites else []
        return tokens.list_tokens(uow, caller, project), found

    held, invited = context.read(request, body)
    now = context.platform(request).clock.now()
    return page(
        request,
        "access.html",
        status=200 if error is None else error.code.http_status,
        section="settings",
        wide=True,
        project=project,
        tokens=[(token, token.state(now)) for token in reversed(held)],
        invitations=[(one, one.state(now)) for one in reversed(invited)],
        roles=ROLES,
        fields=fields,
        secret=secret,
        secret_of=secret_of,
        may_create=caller.may("podyard.tokens.create", project),
        may_invite=caller.may("podyard.invitations.create", project),
        url=project_url(project, "settings", "access"),
        error=error.message if error else None,
        commands=[Command("podyard", f"podyard auth token list --project {project}")],
    )
