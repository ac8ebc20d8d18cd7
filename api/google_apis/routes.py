"""The routes of the APIs that launchers ask first. A path below `/google/HOST/` is looked up in the
table; what is not there is refused and recorded, as every call that Podyard does not serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from podyard.api import deps, unserved
from podyard.api.google_apis import (
    billing,
    discovery,
    logs,
    metrics,
    projects,
    roles,
    service_accounts,
    services,
)
from podyard.api.google_apis.call import ApiCall, bind_query
from podyard.api.google_apis.schema import HOSTS, all_methods, find, vocabulary
from podyard.api.json_body import parse_json
from podyard.api.wire import reader
from podyard.db.access import projects as project_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal

Handler = Callable[[ApiCall], dict[str, Any]]
HANDLERS: Mapping[str, Handler] = {
    **projects.HANDLERS,
    **roles.HANDLERS,
    **service_accounts.HANDLERS,
    **services.HANDLERS,
    **billing.HANDLERS,
    **logs.HANDLERS,
    **metrics.HANDLERS,
}
# Checked before the body is read, where the permission is not one on the project.
CHECKS: Mapping[str, Callable[[ApiCall], None]] = {**service_accounts.CHECKS, **logs.CHECKS}

_NUMBER_DIGITS_MAX = 18  # the databases' integers hold it
router = APIRouter(include_in_schema=False)

assert {method.key for method in all_methods()} == set(HANDLERS), "each method has its handler"


async def of_host(request: Request, path: str) -> Response:
    host = request.url.path.split("/")[2]
    if path == "$discovery/rest":
        return discovery.of_host(request, host)
    data = await request.body()
    return await to_thread.run_sync(_answer, request, host, path, data)


for _host in sorted(HOSTS):
    router.add_api_route(
        f"{unserved.PREFIX}{_host}/{{path:path}}", of_host, methods=unserved.METHODS
    )


def _answer(request: Request, host: str, path: str, data: bytes) -> Response:
    match = find(host, "GET" if request.method == "HEAD" else request.method, path)
    if match is None:
        return unserved.refuse(request, host, f"/{path}")
    method, names = match
    caller = deps.principal(request)
    project, names = _project_of(request, names)
    call = ApiCall(request, method, caller, names, project, {}, {})
    check = CHECKS.get(method.key)
    if check is not None:
        check(call)
    elif method.permission:
        caller.require(method.permission, project or "*", f"projects/{project}")
    query = bind_query(method, request)
    body = reader.read(vocabulary(), method.request, parse_json(data)) if method.request else {}
    answer = HANDLERS[method.key](ApiCall(request, method, caller, names, project, query, body))
    return JSONResponse(answer)


def _id_of(uow: UnitOfWork, number: str, caller: Principal) -> str:
    """The id of the project with a number. One in which the caller has no role stays as it is: a
    refusal must not tell its id."""
    row = project_rows.of_number(uow, int(number[:_NUMBER_DIGITS_MAX]))
    is_known = row is not None and bool({row.project, "*"} & set(caller.roles))
    return row.project if row is not None and is_known else number


def _project_of(request: Request, names: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The project in a path's names by its id, and the names with it: clients may say its number
    instead."""
    for key, value in names.items():
        parts = value.split("/")
        at = 1 if parts[0] == "projects" and len(parts) > 1 else 0
        if at == 0 and key not in ("projectId", "resource"):
            continue
        if parts[at].isdecimal():
            parts[at] = deps.read(
                request, partial(_id_of, number=parts[at], caller=deps.principal(request))
            )
        return parts[at], {**names, key: "/".join(parts)}
    return "", names
