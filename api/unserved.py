"""Calls of Google's APIs that Podyard does not serve: 501 in Google's envelope, and a list of them.

`/google/HOST/PATH` is what a client asked of `https://HOST/PATH`: gcloud's endpoint overrides and
the proxies of `podyard up` and `podyard run` lead there.
"""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.control.platform import unserved
from podyard.http import google

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
PREFIX = google.API_PREFIX

router = APIRouter(route_class=deps.Route)
# Answers for Google's hosts are not part of Podyard's REST API.
answers = APIRouter(include_in_schema=False)


class UnservedCall(TypedDict):
    """`calls`: how often it was made."""

    host: str
    method: str
    path: str
    calls: int
    lastTime: Timestamp


class UnservedCalls(TypedDict):
    calls: list[UnservedCall]


@router.get("/podyard/v1/unservedCalls")
def list_calls(request: Request) -> UnservedCalls:
    """The calls of Google's APIs that were refused because Podyard does not serve them, the newest
    first."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: unserved.list_calls(uow, caller))
    return {
        "calls": [
            {
                "host": call.host,
                "method": call.method,
                "path": call.path,
                "calls": call.calls,
                "lastTime": call.last.rfc3339(),
            }
            for call in found
        ]
    }


@answers.api_route(PREFIX + "{host}/{path:path}", methods=METHODS)
async def of_host(request: Request, host: str, path: str) -> Response:
    return await to_thread.run_sync(refuse, request, host, f"/{path}")


@answers.api_route("/storage/{path:path}", methods=METHODS)
@answers.api_route("/upload/storage/{path:path}", methods=METHODS)
@answers.api_route("/batch/{path:path}", methods=METHODS)
async def of_path(request: Request) -> Response:
    host = "storage.googleapis.com" if "storage" in request.url.path else google.COMPUTE_HOST
    return await to_thread.run_sync(refuse, request, host, request.url.path)


def refuse(request: Request, host: str, path: str) -> Response:
    """Records the call and answers 501."""
    deps.principal(request)
    deps.write(request, lambda uow: unserved.record(uow, host, request.method, path))
    agent = request.headers.get("user-agent", "")
    status, body = google.refusal(f"{request.method} https://{host}{path}", agent)
    return JSONResponse(body, status)
