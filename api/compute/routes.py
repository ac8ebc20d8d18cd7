"""The routes of Compute Engine, made from the table of methods. What the table has not is an empty
list, where an empty project has one, or refused by name and recorded."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from podyard.api import deps, unserved
from podyard.api.compute import (
    addresses,
    catalogue,
    disks,
    empty,
    errors,
    firewalls,
    groups,
    instances,
    networks,
    operations,
    projects,
    resize_requests,
    routing,
)
from podyard.api.compute.call import Change, Handler, read_call, selection_of
from podyard.api.compute.schema import VERSIONS, ComputeMethod, methods
from podyard.api.wire import batch, selector
from podyard.base import log
from podyard.base.errors import PodyardError
from podyard.http import google
from podyard.http.context import write_async

HANDLERS: Mapping[str, Handler] = {
    **addresses.HANDLERS,
    **catalogue.HANDLERS,
    **disks.HANDLERS,
    **firewalls.HANDLERS,
    **networks.HANDLERS,
    **groups.HANDLERS,
    **instances.HANDLERS,
    **operations.HANDLERS,
    **projects.HANDLERS,
    **resize_requests.HANDLERS,
    **routing.HANDLERS,
}
_VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_MEDIA_TYPE = "application/json; charset=UTF-8"

router = APIRouter()


class _PathStep:
    """A part of a path: a word, an id, or the end may follow."""

    def __init__(self) -> None:
        self.words: dict[str, _PathStep] = {}
        self.id: _PathStep | None = None
        self.methods: dict[str, ComputeMethod] = {}

    def add(self, parts: list[str], method: ComputeMethod) -> None:
        if not parts:
            self.methods[method.verb] = method
            return
        first, *rest = parts
        if first.startswith("{"):
            self.id = self.id or _PathStep()
            self.id.add(rest, method)
        else:
            self.words.setdefault(first, _PathStep()).add(rest, method)

    def find(
        self, parts: list[str], ids: tuple[str, ...]
    ) -> tuple[_PathStep, tuple[str, ...]] | None:
        """The end of a path with the ids on the way; a word goes before an id."""
        if not parts:
            return self, ids
        first, *rest = parts
        word = self.words.get(first)
        if word is not None and (end := word.find(rest, ids)) is not None:
            return end
        return self.id.find(rest, (*ids, first)) if self.id is not None and first else None


@functools.cache
def _paths() -> _PathStep:
    root = _PathStep()
    for method in methods():
        root.add(method.path.split("/"), method)
    return root


def method_of(verb: str, path: str) -> tuple[ComputeMethod, Mapping[str, str]] | None:
    """The method of a path behind the version, with its ids by their names; None: the table has
    none."""
    end = _paths().find([unquote(part) for part in path.split("/")], ())
    method = None if end is None else end[0].methods.get(verb)
    if end is None or method is None:
        return None
    return method, dict(zip(method.placeholders, end[1], strict=True))


@router.post("/batch/compute/{version}", include_in_schema=False)
async def answer_batch(request: Request) -> Response:
    """gcloud asks several projects for their images in one request."""
    try:
        return await batch.answer(request, await request.body(), answer)
    except PodyardError as error:
        return errors.answer(error)


@router.api_route("/compute/{version}/{path:path}", methods=_VERBS, include_in_schema=False)
async def answer(request: Request) -> Response:
    # As it was sent: an id may hold an escaped slash.
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    _, _, version, path = raw.partition(b"?")[0].decode("latin-1").split("/", 3)
    match = method_of(request.method, path) if version in VERSIONS else None
    if match is None:
        return await to_thread.run_sync(_without_method, request)
    try:
        return await _answer(request, f"compute/{version}", *match)
    except PodyardError as error:
        return errors.answer(error)


async def _answer(
    request: Request, via: str, method: ComputeMethod, names: Mapping[str, str]
) -> Response:
    call = read_call(request, method, names, await request.body() if method.body else b"")
    selection = selection_of(call)
    if method.id in operations.WAITING:
        shown: Any = await operations.WAITING[method.id](call)
    elif method.verb == "GET" or method.answer not in ("", "Operation"):
        shown = await to_thread.run_sync(HANDLERS[method.id], call)
    else:
        change = HANDLERS[method.id](call)
        assert isinstance(change, Change), method.id
        operation = await write_async(request, change.unit, via=via)
        if operation is None:
            return Response(status_code=204)
        log.note(operation=operation.operation_id)
        shown = operations.to_api_operation(operation)
    content = json.dumps(selector.select(shown, selection), ensure_ascii=False)
    return Response(content, media_type=_MEDIA_TYPE)


def _without_method(request: Request) -> Response:
    """As an empty project answers; what it has no answer for is refused and recorded."""
    deps.principal(request)
    shown = empty.answer(request.method, request.url.path)
    if shown is None:
        return unserved.refuse(request, google.COMPUTE_HOST, request.url.path)
    status, body = shown
    return JSONResponse(body, status)
