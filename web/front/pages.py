"""The console's router: sign-in, the way to a project, static files, and the pages of the
sections."""

from __future__ import annotations

import importlib.resources
from functools import cache
from pathlib import PurePath

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.http import context
from podyard.http.session import check_own_form, end_session, start_session
from podyard.web.billing import billing, invoice_print
from podyard.web.billing import forms as billing_forms
from podyard.web.front import connect, docs, explain, lesson, overview, search
from podyard.web.instances import create as instance_form
from podyard.web.instances import groups as instance_groups
from podyard.web.instances import list as instance_list
from podyard.web.instances import page as instance_page
from podyard.web.jobs import compare, jobs
from podyard.web.jobs import list as job_list
from podyard.web.jobs import log as job_log
from podyard.web.jobs import page as job_page
from podyard.web.jobs import program as job_program
from podyard.web.jobs.resize import page as resize_page
from podyard.web.kit.render import (
    FORM_FIELDS_MAX,
    ConsoleRoute,
    error_page,
    form_of,
    page,
    project_url,
    see_other,
)
from podyard.web.nodes import create, machines, nodes, pods, queue, queued_resources, reservations
from podyard.web.settings import access, operator, project_settings, webhooks
from podyard.web.storage import objects as storage_objects
from podyard.web.storage import storage
from podyard.web.storage.preview import page as preview_page

STATIC_FILES = (
    "podyard.css",
    "jobs.css",
    "create.css",
    "podyard.js",
    "charts.js",
    "job.js",
    "pod.js",
)
STATIC_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
# how long a browser may use a style sheet without asking; an upgrade shows after that
STATIC_SECONDS = 60
TOKEN_CHARACTERS_MAX = 512

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)


@router.get("/")
def root() -> Response:
    return see_other("/console")


@router.get("/favicon.ico")
def favicon() -> Response:
    return _static("favicon.svg", "image/svg+xml")


@router.get("/static/{name}")
def static(name: str) -> Response:
    if name not in STATIC_FILES:
        raise HTTPException(404, "There is no such file.")
    return _static(name, STATIC_TYPES[PurePath(name).suffix])


@router.get("/login")
def login_form(request: Request) -> Response:
    return page(request, "login.html")


@router.post("/login")
async def login(request: Request) -> Response:
    """Checks the token and signs the browser in with it."""
    check_own_form(request)
    form = await request.form(max_files=0, max_fields=FORM_FIELDS_MAX)
    token = str(form.get("token", "")).strip()
    try:
        _check_token(request, token)
    except PodyardError as error:
        return page(request, "login.html", status=error.code.http_status, error=error.message)
    return start_session(request, see_other("/console"), token)


@router.post("/console/logout")
async def logout(request: Request) -> Response:
    await form_of(request)
    return end_session(see_other("/login"))


@router.get("/console")
def console(request: Request) -> Response:
    caller = context.principal(request)
    projects = context.read(request, lambda uow: identity.list_projects(uow, caller))
    if not projects:
        text = (
            f"{caller.email} has no role in any project. Its owner gives one with: "
            "podyard auth "
            "token create"
        )
        return error_page(request, 403, "No project yet", text)
    return see_other(project_url(projects[0].project, "overview"))


@router.get("/console/{project}")
def project_root(project: str) -> Response:
    return see_other(project_url(project, "overview"))


SECTION_ROUTERS = (
    *(overview, connect, compare, create, nodes, job_list, job_program, jobs, job_log),
    *(resize_page, job_page, preview_page),
    *(instance_list, instance_form, instance_page, instance_groups),
    *(queue, queued_resources, reservations, billing, billing_forms, pods, machines, operator),
    *(
        access,
        project_settings,
        webhooks,
        storage,
        storage_objects,
        explain,
        lesson,
        invoice_print,
        docs,
        search,
    ),
)
for section in SECTION_ROUTERS:
    router.include_router(section.router)


@router.get("/console/{rest:path}")
def nothing_here(request: Request, rest: str) -> Response:
    return error_page(request, 404, "Not found", f"The console has no page /console/{rest}.")


def _check_token(request: Request, token: str) -> None:
    if (
        not token
        or len(token) > TOKEN_CHARACTERS_MAX
        or not token.isascii()
        or not token.isprintable()
    ):
        raise PodyardError(Code.UNAUTHENTICATED, "That is not a token. `podyard env` prints yours.")
    try:
        caller = context.platform(request).database.read(
            lambda uow: identity.authenticate(uow, token)
        )
    except PodyardError as error:
        if error.code is not Code.UNAUTHENTICATED:
            raise
        text = "This token is not known here, or it has been revoked. `podyard env` prints yours."
        raise PodyardError(error.code, text) from None
    if caller.agent_id is not None or caller.attempt_id is not None:
        raise PodyardError(
            Code.PERMISSION_DENIED, "This token belongs to an agent or a job, not to a person."
        )


def _static(name: str, kind: str) -> Response:
    return Response(
        _file(name), media_type=kind, headers={"Cache-Control": f"max-age={STATIC_SECONDS}"}
    )


@cache
def _file(name: str) -> bytes:
    return importlib.resources.files("podyard.web").joinpath("static", name).read_bytes()
