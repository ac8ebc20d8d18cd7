"""From what a route found to a page: the templates, their formats, and how a failure looks in the
console."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from typing_extensions import override

from podyard.base.clock import LAG_SECONDS_SHOWN, PlatformTime
from podyard.base.durations import duration_for_people
from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import expires_soon
from podyard.http import context
from podyard.http.guard import CSRF_FIELD, check_csrf, csrf_token
from podyard.web.kit import formats

FORM_FIELDS_MAX = 100
COMPRESSED = ("text/html", "text/css", "text/javascript", "application/json")
GZIP_BYTES_MIN = 1024  # below, an answer fits in one packet either way
GZIP_LEVEL = 4  # a page of 70 kB in a millisecond
# what the next page says once: it needs no script, and stands in no address
NOTICE_COOKIE = "podyard_notice"
NOTICE_SECONDS = 30  # a notice of an answer that never came is forgotten
NOTICE_CHARACTERS_MAX = 400
# Groups of the navigation: name, and (end of the address, label) of each section.
SECTIONS = (
    ("Project", (("overview", "Overview"),)),
    (
        "Compute",
        (
            ("nodes", "Nodes"),
            ("instances", "Instances"),
            ("jobs", "Jobs"),
            ("queue", "Queue"),
            ("pods", "Pods"),
        ),
    ),
    ("Costs", (("billing", "Billing"),)),
    ("Help and settings", (("settings", "Settings"), ("lesson", "Explain"))),
)
OPERATOR_SECTIONS = (("Platform", (("machines", "Machines"), ("operator", "Operator"))),)
# The document that the "Docs" link of a page leads to, by the page's section.
SECTION_DOCS: Mapping[str, str] = {
    "nodes": "howto/hosts.md",
    "instances": "howto/instances.md",
    "jobs": "howto/jobs.md",
    "queue": "internals/queued-resources.md",
    "billing": "howto/dashboard.md",
    "settings": "howto/credentials.md",
    "machines": "howto/machines.md",
    "operator": "howto/faults.md",
    "mxu": "concepts/systolic-array.md",
    "all-reduce": "concepts/all-reduce.md",
}


@cache
def templates() -> Environment:
    found = Environment(
        loader=PackageLoader("podyard.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(formats.FILTERS)
    found.globals["CSRF_FIELD"] = CSRF_FIELD
    found.globals.update(SECTIONS=SECTIONS, OPERATOR_SECTIONS=OPERATOR_SECTIONS)
    found.globals["SECTION_DOCS"] = SECTION_DOCS
    return found


class _CompiledTemplates(FileSystemBytecodeCache):
    """A page never fails for a disk that is full or read-only, nor for a file that is damaged."""

    @override
    def load_bytecode(self, bucket: Bucket) -> None:
        # what reading a damaged pickle may raise is listed nowhere
        with contextlib.suppress(Exception):
            super().load_bytecode(bucket)

    @override
    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def keep_compiled(folder: Path) -> None:
    """Compiled templates are kept there over restarts: compiling takes a third of a page's first
    answer."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        templates().bytecode_cache = _CompiledTemplates(str(folder))


def fragment(template: str, **values: Any) -> str:
    return templates().get_template(template).render(**values)


# A page shows what only this caller may see, and its state of this second: no cache may keep it.
NOT_KEPT = {"Cache-Control": "no-store"}


def page_text(request: Request, template: str, **values: Any) -> str:
    """A page of the console. What the frame needs (who, which project, CSRF token) is looked up
    here."""
    return fragment(template, **{**_frame(request), **values})


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    response = HTMLResponse(page_text(request, template, **values), status, headers=NOT_KEPT)
    if NOTICE_COOKIE in request.cookies:
        response.delete_cookie(NOTICE_COOKIE, path="/", httponly=True, samesite="strict")
    return response


def compress(request: Request, response: Response) -> Response:
    """A list of 100 rows is a tenth of its size then. That a page holds a token and what an address
    says gives nothing away: no other site can ask for it with the session, whose cookie is
    SameSite=Strict."""
    body, kind = getattr(response, "body", b""), response.headers.get("content-type", "")
    if (
        kind.startswith(COMPRESSED)
        and len(body) >= GZIP_BYTES_MIN
        and "content-encoding" not in response.headers
    ):
        response.headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("accept-encoding", ""):
            response.body = gzip.compress(body, GZIP_LEVEL)
            response.headers["Content-Encoding"] = "gzip"
            response.headers["Content-Length"] = str(len(response.body))
    return response


def error_page(request: Request, status: int, title: str, text: str) -> Response:
    return page(request, "error.html", status=status, title=title, text=text)


def see_other_with_notice(url: str, text: str) -> Response:
    """As `see_other`; the page that follows says `text` once."""
    response = see_other(url)
    response.set_cookie(
        NOTICE_COOKIE,
        quote(text),
        max_age=NOTICE_SECONDS,
        httponly=True,
        samesite="strict",
        path="/",
    )
    return response


def change(
    request: Request,
    body: Callable[[UnitOfWork], object],
    url: str,
    notice: str,
    refused: Callable[[PodyardError], Response],
) -> Response:
    """Makes a change: the page at `url` says what was done; `refused` is the page that says why
    not."""
    try:
        context.write(request, body)
    except PodyardError as error:
        return refused(error)
    return see_other_with_notice(url, notice)


def see_other(url: str) -> Response:
    """After a change: the browser gets the page again, and a reload repeats nothing."""
    return RedirectResponse(url, status_code=303)


def project_url(project: str, *parts: str) -> str:
    return "/".join(["/console", *(quote(part, safe="") for part in (project, *parts))])


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a posted form, after the CSRF check: no route that changes anything reads its
    form otherwise."""
    try:
        form = await request.form(max_files=0, max_fields=FORM_FIELDS_MAX)
    except HTTPException as error:
        raise PodyardError(Code.INVALID_ARGUMENT, str(error.detail)) from None
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    check_csrf(request, fields.get(CSRF_FIELD))
    return fields


async def form_with_file(
    request: Request, name: str
) -> tuple[Mapping[str, str], UploadFile | None]:
    """As `form_of`, of a form that may bring one file; None: none was chosen."""
    try:
        form = await request.form(max_files=1, max_fields=FORM_FIELDS_MAX)
    except HTTPException as error:
        raise PodyardError(Code.INVALID_ARGUMENT, str(error.detail)) from None
    fields = {key: value for key, value in form.items() if isinstance(value, str)}
    check_csrf(request, fields.get(CSRF_FIELD))
    file = form.get(name)
    return fields, file if isinstance(file, UploadFile) and file.filename else None


class ConsoleRoute(APIRoute):
    """A route whose failures are pages, not the API's JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return compress(request, await handler(request))
            except PodyardError as error:
                return error_page(
                    request, error.code.http_status, title_of(error.code), error.message
                )
            except RequestValidationError:
                return error_page(
                    request,
                    400,
                    "That does not fit",
                    "The address has a value that is not understood.",
                )
            except HTTPException as error:
                return error_page(
                    request, error.status_code, "That did not work", str(error.detail)
                )

        return handle


def title_of(code: Code) -> str:
    """Return what a refusal is called."""
    titles = {
        Code.NOT_FOUND: "Not found",
        Code.PERMISSION_DENIED: "Not allowed",
        Code.UNAUTHENTICATED: "Not signed in",
        Code.UNAVAILABLE: "Not available just now",
    }
    return titles.get(code, "That did not work")


def _lag(uow: UnitOfWork) -> str:
    """Return how far platform time is behind UTC; empty where it is not."""
    seconds = uow.clock.lag_seconds(uow.real_now) or 0.0
    return duration_for_people(round(seconds)) if seconds >= LAG_SECONDS_SHOWN else ""


def _frame(request: Request) -> dict[str, Any]:
    state = request.scope.get("state", {})
    caller = state.get("principal")
    frame: dict[str, Any] = {
        "path": request.url.path,
        "project": request.path_params.get("project"),
        "projects": [],
        "caller": caller,
        "csrf": csrf_token(state["token"]) if caller is not None else "",
        "platform_time": None,
        "lag": "",
        "token_ends_in": "",
        "section": "",
        "live": None,
        "feeds": (),
        "connect_url": "",
        "confirm": request.query_params.get("confirm"),
        "error": None,
        "wide": False,
        "notice": unquote(request.cookies.get(NOTICE_COOKIE, ""))[:NOTICE_CHARACTERS_MAX],
        "operates": caller is not None and caller.may("podyard.clock.set", "*"),
    }
    if caller is None:
        return frame
    now = context.platform(request).clock.now()
    if expires_soon(caller.expires, now):
        frame["token_ends_in"] = duration_for_people(max(caller.expires.seconds_since(now), 0.0))

    def body(uow: UnitOfWork) -> tuple[list[str], PlatformTime, str]:
        return [found.project for found in identity.list_projects(uow, caller)], uow.now, _lag(uow)

    frame["projects"], frame["platform_time"], frame["lag"] = context.read(request, body)
    if frame["project"] not in frame["projects"]:
        # A name out of the address: only one that the caller may see takes part in links.
        frame["project"] = frame["projects"][0] if frame["projects"] else None
    frame["connect_url"] = _connect_url(request, frame["project"])
    return frame


def _connect_url(request: Request, project: str | None) -> str:
    """Return how to connect; on the page of a node or an instance to its hosts."""
    if project is None:
        return ""
    asked = request.path_params
    to = ""
    for field, query in (("node_id", "node"), ("instance", "instance")):
        if asked.keys() >= {"zone", field}:
            to = f"?{query}={quote(asked['zone'])}/{quote(asked[field])}"
    return project_url(project, "connect") + to
