"""The storage process's application: which path is which call of Cloud Storage's APIs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from anyio import to_thread
from starlette.datastructures import State
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podyard.api.storage import batch, buckets, objects, uploads, xml
from podyard.api.storage.answers import check_query, json_error, refusal, segments, xml_error
from podyard.api.storage.media import Unsatisfiable
from podyard.api.storage.operations import OperationMeter
from podyard.api.storage.parts import OpenUploads
from podyard.base.clock import RealClock
from podyard.base.contents import Contents
from podyard.base.errors import Code, PodyardError
from podyard.base.operation_counts import OperationCounts
from podyard.control.access import identity
from podyard.control.storage import sweep
from podyard.db.store.condition import DATABASE_ERRORS
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet import Fleet
from podyard.http.context import Platform
from podyard.http.guard import LOOPBACK_HOSTS, Guard
from podyard.settings import Settings

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 600.0  # between two looks for contents that nobody names
# Between two usage events of a bucket and class of operations: a busy bucket has 8,640 a month of
# each.
OPERATION_EVENTS_SECONDS = 300.0
DRAINED_BYTES_MAX = 16 << 20  # of a refused request
_JSON_ROOTS = (
    "/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/", "/resumable/upload/storage/v1/",
    "/batch/storage/v1",
)  # fmt: skip

Handler = Callable[..., Awaitable[Response]]


class StorageApp:
    """Both APIs, behind the guard. `begin` and `end` frame its life."""

    def __init__(
        self, settings: Settings, database: Database, fleet: Fleet, clock: RealClock
    ) -> None:
        self._state = State()
        self._state.platform = Platform(settings, database, fleet, clock)
        self._state.contents = Contents(settings.contents_path)
        self._state.uploads = OpenUploads(self._state.contents)
        self._state.operations = OperationMeter(
            database, OperationCounts(settings.operation_counts_path)
        )
        self._database, self._clock = database, clock

    @property
    def state(self) -> State:
        """Return what requests find by their application."""
        return self._state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        scope["app"] = self
        ended = False

        async def follow() -> Message:
            nonlocal ended
            message = await receive()
            ended = not message.get("more_body")
            return message

        with contextlib.suppress(ClientDisconnect):
            response = await self.respond(Request(scope, follow))
            total = 0
            # Most clients read an answer only when they have sent their body.
            while response.status_code >= 400 and not ended and total <= DRAINED_BYTES_MAX:
                total += len((await follow()).get("body", b""))
            await response(scope, receive, send)

    async def respond(self, request: Request) -> Response:
        """The answer to a request, errors included. Raises ClientDisconnect."""
        is_json = request.scope["path"].startswith(_JSON_ROOTS)
        try:
            check_query(request)
            response = await (_json(request) if is_json else xml.handle(request))
            if response.status_code < 400:
                self._state.operations.count(request, is_json)
        except PodyardError as error:
            response = json_error(error) if is_json else xml_error(error)
            if isinstance(error, Unsatisfiable):
                response.headers["Content-Range"] = f"bytes */{error.size}"
            if refusal(error)[0] >= 500:
                logger.warning("%s %s: %s", request.method, request.scope["path"], error.message)
        except ClientDisconnect:
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.scope["path"])
            failure = PodyardError(Code.INTERNAL, "Internal error; the server's log says more")
            response = json_error(failure) if is_json else xml_error(failure)
        return response

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        tasks = [asyncio.create_task(self._sweep()), asyncio.create_task(self._write_operations())]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
        self._state.uploads.close()
        await self._state.operations.write()
        await send({"type": "lifespan.shutdown.complete"})

    async def _sweep(self) -> None:
        while True:
            try:
                await to_thread.run_sync(
                    sweep.sweep, self._database, self._state.contents, self._clock
                )
            except (OSError, *DATABASE_ERRORS) as error:
                logger.warning("the sweep of contents failed: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _write_operations(self) -> None:
        while True:
            await self._state.operations.write()  # those of a process that was killed, first
            await asyncio.sleep(OPERATION_EVENTS_SECONDS)


def create_storage_app(
    settings: Settings, database: Database, fleet: Fleet, clock: RealClock
) -> ASGIApp:
    return Guard(
        StorageApp(settings, database, fleet, clock),
        authenticate=lambda token: database.read(lambda uow: identity.authenticate(uow, token)),
        clock=clock,
        allowed_hosts=LOOPBACK_HOSTS | xml.HOSTS,
        body_bytes_max=None,
    )


async def _json(request: Request) -> Response:
    match request.method, segments(request):
        case "POST", ["batch", "storage", "v1"]:
            return await batch.handle(request)
        case method, ["resumable", *rest]:
            return await _upload(request, method, rest)
        case method, ["upload", *_] as parts:
            return await _upload(request, method, parts)
        case (("GET" | "HEAD"), ["download", "storage", "v1", "b", bucket, "o", *name]):
            request.scope["query_string"] += b"&alt=media"
            return await objects.get(
                Request(request.scope, request.receive), bucket, "/".join(name)
            )
        case method, ["storage", "v1", *rest]:
            return await _call(request, method, rest)
    raise _refuse_unknown(request)


async def _upload(request: Request, method: str, parts: list[str]) -> Response:
    match method, parts:
        case (("PUT" | "POST" | "DELETE"), ["upload", "storage", "v1", "b", bucket, "o"]) if (
            "upload_id" in request.query_params
        ):
            return await uploads.in_parts(request, bucket)
        case (("POST" | "PUT"), ["upload", "storage", "v1", "b", bucket, "o"]):
            return await uploads.insert(request, bucket)
    raise _refuse_unknown(request)


async def _call(request: Request, method: str, parts: list[str]) -> Response:  # noqa: C901
    """Below /storage/v1/. A client that does not escape the slashes of a name has more parts."""
    match method, parts:
        case "GET", ["b"]:
            return await buckets.list_buckets(request)
        case "POST", ["b"]:
            return await buckets.insert(request)
        case (("GET" | "PATCH" | "PUT" | "DELETE"), ["b", bucket]):
            return await _BUCKET[method](request, bucket)
        case "GET", ["b", bucket, "o"]:
            return await objects.list_objects(request, bucket)
        case "GET", ["b", bucket, "storageLayout"]:
            return await buckets.layout(request, bucket)
        case "GET", ["b", bucket, "managedFolders" | "folders" as kind]:
            return await buckets.no_folders(request, bucket, kind)
        case _, ["b", bucket, "iam"]:
            return await buckets.iam(request, bucket)
        case "GET", ["b", bucket, "iam", "testPermissions"]:
            return await buckets.test_permissions(request, bucket)
        case _, ["b", _, "acl" | "defaultObjectAcl", *_] | ["b", _, "o", _, "acl", *_]:
            return await buckets.no_acl(request)
        case "GET", ["projects", project, "serviceAccount"]:
            return await buckets.service_account(request, project)
        case "POST", ["b", bucket, "o", *name, "compose"]:
            return await objects.compose(request, bucket, "/".join(name))
        case "POST", ["b", bucket, "o", name, "copyTo", "b", other, "o", *to]:
            return await objects.copy(request, (bucket, name), (other, "/".join(to)))
        case "POST", ["b", bucket, "o", name, "rewriteTo", "b", other, "o", *to]:
            return await objects.rewrite(request, (bucket, name), (other, "/".join(to)))
        case "POST", ["b", bucket, "o", name, "moveTo", "o", *to]:
            return await objects.move(request, (bucket, name), (bucket, "/".join(to)))
        case (("GET" | "HEAD" | "PATCH" | "PUT" | "DELETE"), ["b", bucket, "o", *name]):
            return await _OBJECT[method](request, bucket, "/".join(name))
    raise _refuse_unknown(request)


_BUCKET: dict[str, Handler] = {
    "GET": buckets.get,
    "PATCH": buckets.patch,
    "PUT": buckets.patch,
    "DELETE": buckets.delete,
}
_OBJECT: dict[str, Handler] = {
    "GET": objects.get,
    "HEAD": objects.get,
    "PATCH": objects.patch,
    "PUT": objects.patch,
    "DELETE": objects.delete,
}


def _refuse_unknown(request: Request) -> PodyardError:
    text = (
        f"{request.method} {request.scope['path']} is not a call of Cloud Storage that "
        "this server has"
    )
    return PodyardError(Code.NOT_FOUND, text)
