"""The routes of the Cloud TPU API: one for each method of each version, made from the table of
methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from podyard.api.tpu import nodes, operations, places, queue
from podyard.api.tpu.call import Call, OperationChange, read_call, render
from podyard.api.tpu.schema import Method, methods_of
from podyard.base import log
from podyard.domain.fault import Subject
from podyard.http.context import write_async

HANDLERS: Mapping[str, Callable[[Call], dict[str, Any] | OperationChange]] = {
    **places.HANDLERS,
    **nodes.HANDLERS,
    **queue.HANDLERS,
    **operations.HANDLERS,
}
# What may be answered without a unit of work, on the event loop.
AT_ONCE: Mapping[str, Callable[[Call], bytes | None]] = {"nodes.get": nodes.get_at_once}
MEDIA_TYPE = "application/json; charset=UTF-8"
# In the order of their use: the server tries them one by one.
_BY_USE = ("v2", "v2alpha1", "v1", "v1alpha1")


def routes() -> list[BaseRoute]:
    return [Mount(f"/{version}", app=_Version(version)) for version in _BY_USE]


class _Version:
    """All methods of one version. A path says by its parts which one is meant, so none has to be
    tried."""

    def __init__(self, version: str) -> None:
        self.routes: list[BaseRoute] = []
        self._by_parts: dict[tuple[int, str, str], dict[str, Route]] = {}
        for method in methods_of(version):
            name = f"{version}.{method.id}"
            route = Route(
                f"/{method.flat_path}", _endpoint(version, method), methods=[method.verb], name=name
            )
            self.routes.append(route)
            key, _ = _parts(f"/{version}/{method.flat_path}")
            self._by_parts.setdefault(key, {})[method.verb] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The path as it was sent: an id may hold an escaped slash.
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        key, parameters = _parts(raw.partition(b"?")[0].decode("latin-1"))
        by_verb = self._by_parts.get(key)
        if by_verb is None:
            raise HTTPException(404)
        route = by_verb.get(scope["method"])
        if route is None:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(by_verb))})
        scope["path_params"] = parameters
        await route.app(scope, receive, send)


def _parts(path: str) -> tuple[tuple[int, str, str], dict[str, str]]:
    """Return what tells methods apart: how many parts the path has, its collection, and the verb
    behind the colon; and the ids that it holds. Behind the version come
    `projects/P/locations/Z/COLLECTION/ID`."""
    parts = path.split("/")[2:]
    last, _, custom = parts[-1].partition(":")
    parts[-1] = last
    if parts[0::2][:2] not in (["projects"], ["projects", "locations"]):
        return (0, "", ""), {}
    names = ("project", "zone", "id")
    found = {name: unquote(part) for name, part in zip(names, parts[1::2], strict=False)}
    if not all(found.values()):
        return (0, "", ""), {}
    collection = parts[4] if len(parts) > 4 else ""
    return (len(parts), collection, custom), found


@functools.cache
def _methods() -> Mapping[tuple[str, tuple[int, str, str], str], str]:
    """Id of each method by version, parts of its path, and verb."""
    return {
        (version, _parts(f"/{version}/{method.flat_path}")[0], method.verb): method.id
        for version in _BY_USE
        for method in methods_of(version)
    }


def called_method(scope: Scope) -> Subject | None:
    """The method that a request calls and what it names, as fault rules match it; None: it calls no
    method."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    key, parameters = _parts(path)
    method = _methods().get((path.split("/")[1], key, scope["method"]))
    if method is None:
        return None
    member = parameters.get("id", "")
    if not member and scope["method"] == "POST":
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        new = [
            asked[name][0]
            for name in ("nodeId", "node_id", "queuedResourceId", "queued_resource_id")
            if name in asked
        ]
        member = new[0] if new else ""
    project, zone = parameters["project"], parameters.get("zone", "")
    name = f"projects/{project}/locations/{zone}/{method.partition('.')[0]}/{member}"
    return Subject(zone, "", project, (member, name), method)


def _endpoint(version: str, method: Method) -> Callable[[Request], Any]:
    handler, at_once = HANDLERS[method.id], AT_ONCE.get(method.id)
    # What changes something says what it will do, and does it in the writer's thread; what reads
    # does so in a thread.
    changes = method.verb != "GET" and method.response in ("Operation", "Empty")

    def read(call: Call) -> bytes:
        found = handler(call)
        assert not isinstance(found, OperationChange), method.id
        return render(found)

    async def endpoint(request: Request) -> Response:
        body = b"" if method.body == "-" else await request.body()
        call = read_call(request, method, version, body)
        found = None if at_once is None else at_once(call)
        if found is None and changes:
            change = handler(call)
            assert isinstance(change, OperationChange), method.id
            shown = change.show(await write_async(request, change.unit, via=version))
            log.note(operation=str(shown.get("name", "")))
            found = render(shown)
        content = await to_thread.run_sync(read, call) if found is None else found
        return Response(content, media_type=MEDIA_TYPE)

    return endpoint
