"""The HTTP of a host's metadata server: uvicorn's connections on the loop of all hosts, without a
server for each.

`uvicorn.Server` would look ten times a second after each of thousands of hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from podyard.http.read_limits import LimitedProtocol
from podyard.workers.host.metadata import VALUE_BYTES_MAX, Answer, MetadataHandler

HEAD_BYTES_MAX = 16 << 10  # a request's line and headers: what clients send is below 1 KiB
IDLE_SECONDS_MAX = 60  # an open connection without a request

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def listen(handler: MetadataHandler, listener: socket.socket) -> asyncio.Server:
    """Answers on a bound socket until the server is closed."""

    async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        if len(body) > VALUE_BYTES_MAX:
            answer = Answer(413, "", headers=(("Connection", "close"),))
        else:
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            target = scope["raw_path"] + (
                b"?" + scope["query_string"] if scope["query_string"] else b""
            )
            work = asyncio.ensure_future(
                handler.answer(scope["method"], target.decode("latin-1"), headers, body)
            )
            if not await _unless_gone(work, receive):
                return
            answer = work.result()
        await _send(answer, send)

    config = uvicorn.Config(
        application,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    config.load()
    state = ServerState()
    return await asyncio.get_running_loop().create_server(
        lambda: LimitedProtocol(config, state, {}), sock=listener
    )


async def _body(receive: Receive) -> bytes | None:
    """The body, or as much as shows that it is too long; None when the client has hung up."""
    body = b""
    while len(body) <= VALUE_BYTES_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            break
    return body


async def _unless_gone(work: asyncio.Future[Answer], receive: Receive) -> bool:
    """Waits for `work`; ends it when the client hangs up meanwhile."""
    gone = asyncio.ensure_future(receive())
    await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    for task in (work, gone):
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    return not work.cancelled()


async def _send(answer: Answer, send: Send) -> None:
    body = answer.body.encode()
    headers = (
        ("Metadata-Flavor", "Google"),
        ("Content-Type", answer.content_type),
        ("Server", "Metadata Server for VM"),
        ("X-XSS-Protection", "0"),
        ("X-Frame-Options", "SAMEORIGIN"),
        ("Content-Length", str(len(body))),
        *answer.headers,
    )
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
