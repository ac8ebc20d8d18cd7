"""A project's quota, and the keys that programs sign in with: API keys and keys of service
accounts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.control.access import identity, jwt, keys
from podyard.db.compute import quotas
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import ApiKey, ServiceAccountKey
from podyard.domain.project import Project
from podyard.http import context
from podyard.web.kit.commands import Command
from podyard.web.kit.render import ConsoleRoute, form_of, page, project_url, see_other_with_notice
from podyard.web.settings.access import ROLES, base_url

KINDS = ("key", "api-key")  # of the command line
# of a quota: more chips than all fleets have, and the database's integers hold it
CHIPS_DIGITS_MAX = 9

router = APIRouter(prefix="/console/{project}/settings", route_class=ConsoleRoute)


@router.get("/project")
def show_project(request: Request, project: str) -> Response:
    return _project_page(request, project, {}, None)


@router.post("/project")
async def set_quota(request: Request, project: str) -> Response:
    fields = await form_of(request)
    caller = context.principal(request)

    def act() -> Response:
        try:
            chips = _chips(fields.get("chips", "").strip())
            context.write(request, lambda uow: identity.update_project(uow, caller, project, chips))
        except PodyardError as error:
            return _project_page(request, project, fields, error)
        return see_other_with_notice(
            project_url(project, "settings", "project"), "The quota is set."
        )

    return await context.in_thread(act)


@router.get("/keys")
def show_keys(request: Request, project: str) -> Response:
    return _keys_page(request, project, {})


@router.post("/keys/{action}")
async def act(request: Request, project: str, action: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _act(request, project, action, fields))


def _chips(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > CHIPS_DIGITS_MAX:
        raise invalid(
            f"quota {text[:40]!r} is not a number of chips; leave it empty for no quota", "chips"
        )
    return int(text)


def _project_page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:  # fmt: skip
    caller = context.principal(request)

    def body(uow: UnitOfWork) -> tuple[Project, int]:
        caller.require("podyard.projects.get", project, f"projects/{project}")
        return identity.project_row(uow, project), quotas.chips_held(uow, project)

    found, held = context.read(request, body)
    limit = "" if found.chips_max is None else str(found.chips_max)
    return page(
        request,
        "project_settings.html",
        status=200 if error is None else error.code.http_status,
        section="settings",
        wide=True,
        project=project,
        found=found,
        held=held,
        chips=fields.get("chips", limit),
        may_change=caller.may("podyard.projects.create", "*"),
        url=project_url(project, "settings", "project"),
        error=error.message if error else None,
        commands=[
            Command("podyard", f"podyard project update {project} --quota chips={limit or 'none'}")
        ],
    )


def _act(request: Request, project: str, action: str, fields: Mapping[str, str]) -> Response:
    caller, email = context.principal(request), fields.get("email", "").strip()
    roles = [fields["role"]] if fields.get("role") else []
    try:
        if action == "api-key":
            made, secret = context.write(
                request, lambda uow: keys.create_api_key(uow, caller, project, email, roles)
            )
            return _keys_page(
                request, project, {}, secret=secret, secret_of=f"API key {made.key_id} of {email}"
            )
        if action == "service-account-key":
            email = f"{fields.get('name', '').strip()}@{project}.iam.{identity.SERVICE_ACCOUNTS}"
            pair, token_uri = keys.make_pair(), f"{base_url(request)}{jwt.TOKEN_PATH}"
            key = context.write(
                request,
                lambda uow: keys.create_key(
                    uow, caller, project, email, roles, pair.public, token_uri
                ),
            )
            text = json.dumps(keys.key_file(key, pair.private), indent=2)
            return _keys_page(request, project, {}, secret=text, secret_of=f"Key file of {email}")
        if action == "delete-api-key":
            context.write(
                request, lambda uow: keys.delete_api_key(uow, caller, project, fields.get("id", ""))
            )
        elif action == "delete-service-account-key":
            context.write(
                request,
                lambda uow: keys.delete_key(uow, caller, project, "-", fields.get("id", "")),
            )
        else:
            raise invalid(f"unknown action {action!r}", "action")
        return see_other_with_notice(
            project_url(project, "settings", "keys"), "The key is deleted."
        )
    except PodyardError as error:
        return _keys_page(request, project, fields, error=error)


def _keys_page(
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

    def body(uow: UnitOfWork) -> tuple[list[ApiKey], list[ServiceAccountKey]]:
        identity.project_row(uow, project)
        return keys.list_api_keys(uow, caller, project), keys.list_keys(uow, caller, project, "-")

    api_keys, account_keys = context.read(request, body)
    return page(
        request,
        "keys.html",
        status=200 if error is None else error.code.http_status,
        section="settings",
        wide=True,
        project=project,
        api_keys=api_keys,
        account_keys=account_keys,
        roles=ROLES,
        fields=fields,
        domain=f"@{project}.iam.{identity.SERVICE_ACCOUNTS}",
        secret=secret,
        secret_of=secret_of,
        may_create=caller.may("podyard.keys.create", project),
        may_delete=caller.may("podyard.keys.delete", project),
        url=project_url(project, "settings", "keys"),
        error=error.message if error else None,
        commands=[
            Command(
                "podyard",
                "\n".join(f"podyard auth {kind} list --project {project}" for kind in KINDS),
            )
        ],
    )
