"""`/v4/connect` and `/v4/reconnect` of Identity-Aware Proxy's relay."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from podyard.api import deps
from podyard.api.iap import frames
from podyard.api.iap.frames import CloseCode
from podyard.api.iap.relay import Backend, Relay, Relays
from podyard.api.iap.websocket import UPGRADE, WebSocket
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.compute.instances import iap
from podyard.control.compute.instances.iap import TunnelRequest, TunnelTarget
from podyard.domain.host import RELAY_USER, SSH_PORT
from podyard.domain.host_key import KEY_TYPE, private_openssh, public_key, relay_seed
from podyard.http import context
from podyard.http.google import API_PREFIX, IAP_HOST
from podyard.http.running_hosts import wait_until_running
from podyard.http.tunnels import TAKE_OVER, Tunnels

router = APIRouter(prefix=f"{API_PREFIX}{IAP_HOST}/v4", include_in_schema=False)

CONNECT_SECONDS_MAX = 10.0  # to the port: gcloud waits 15 s for the tunnel
_PORT_MAX = 65535
_CODES = {
    Code.PERMISSION_DENIED: CloseCode.NOT_AUTHORIZED,
    Code.NOT_FOUND: CloseCode.LOOKUP_FAILED,
}


@router.get("/connect")
async def connect(request: Request) -> Response:
    """Open a tunnel. What stands in its way closes the websocket, with Google's code for it."""
    socket, wanted = _websocket(request), _tunnel_request(request)
    caller = deps.principal(request)
    tunnels: Tunnels = request.app.state.tunnels
    relays: Relays = request.app.state.relays
    try:
        tunnels.require_room(caller.email)
        target = await context.in_thread(
            lambda: deps.write(request, lambda uow: iap.open_tunnel(uow, caller, wanted))
        )
        place = await wait_until_running(request, target.host, wanted.instance)
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            backend = await _dial(target, place, wanted.port)
    except PodyardError as error:
        code = _CODES.get(error.code, CloseCode.FAILED_TO_CONNECT_TO_BACKEND)
        return _refuse(socket, code, error.message)
    except OSError as error:
        text = f"port {wanted.port} of {wanted.instance} does not answer: {error or 'timeout'}"
        return _refuse(socket, CloseCode.FAILED_TO_CONNECT_TO_BACKEND, text)
    relay = Relay(secrets.token_urlsafe(32), caller.email, backend)
    relays.add(relay)
    holding = asyncio.ensure_future(
        tunnels.hold(caller.email, context.credential(request), relay.ended)
    )
    holding.add_done_callback(partial(_on_end, relays, relay))
    return _Taken(socket, partial(relay.serve, socket, None))


@router.get("/reconnect")
async def reconnect(request: Request) -> Response:
    """Go on with a tunnel over another websocket."""
    socket = _websocket(request)
    relays: Relays = request.app.state.relays
    count = _number(request, "ack", 2**63)
    relay = relays.find(request.query_params.get("sid", ""), deps.principal(request).email)
    if relay is None:
        return _refuse(socket, CloseCode.SID_UNKNOWN, "there is no such tunnel, or no longer")
    return _Taken(socket, partial(relay.serve, socket, count))


def _on_end(relays: Relays, relay: Relay, _: asyncio.Future[None]) -> None:
    """The tunnel has ended, or its credential has."""
    relays.remove(relay)
    relay.interrupt(CloseCode.NOT_AUTHORIZED, "the credential is no longer valid")
    relay.end()


def _websocket(request: Request) -> WebSocket:
    if request.headers.get("upgrade", "").lower() != UPGRADE or TAKE_OVER not in request.scope.get(
        "extensions", {}
    ):
        raise PodyardError(Code.FAILED_PRECONDITION, "this needs a websocket")
    target = f"{request.url.path}?{request.url.query}"
    try:
        socket = WebSocket(request.headers.raw, target, frames.MESSAGE_BYTES_MAX)
    except ValueError as error:
        raise invalid(str(error)) from None
    if frames.SUBPROTOCOL not in socket.subprotocols:
        raise invalid(f"the websocket's subprotocol must be {frames.SUBPROTOCOL}")
    return socket


def _tunnel_request(request: Request) -> TunnelRequest:
    names = ("project", "zone", "instance")
    project, zone, instance = (request.query_params.get(name, "") for name in names)
    if not (project and zone and instance):
        raise invalid(f"{', '.join(names)} and port are required")
    interface = request.query_params.get("interface", iap.INTERFACE)
    return TunnelRequest(project, zone, instance, interface, _number(request, "port", _PORT_MAX))


def _number(request: Request, name: str, most: int) -> int:
    text = request.query_params.get(name, "")
    if not (text.isascii() and text.isdecimal() and int(text) <= most):
        raise invalid(f"{name} {text[:40]!r} must be a number up to {most}", name)
    return int(text)


async def _dial(target: TunnelTarget, place: tuple[str, int], port: int) -> Backend:
    """Connect to a port of the host: to its ssh server as everybody does, to all others by way of
    that server, which for `RELAY_USER` reaches what listens in the box and nothing else.

    Raises OSError.
    """
    if port == SSH_PORT:
        reader, writer = await asyncio.open_connection(*place)
        return Backend(reader, writer, writer.close)
    import asyncssh  # half a second, and few tunnels need it

    known = asyncssh.import_public_key(f"{KEY_TYPE} {public_key(target.seed)}")
    key = asyncssh.import_private_key(private_openssh(relay_seed(target.seed)))
    try:
        server = await asyncssh.connect(
            *place,
            username=RELAY_USER,
            client_keys=[key],
            known_hosts=([known], [], []),
            config=None,
        )
        try:
            there, back = await server.open_connection(RELAY_USER, port)
        except BaseException:
            server.abort()
            raise
    except asyncssh.Error as error:
        raise ConnectionError(error.reason) from None
    return Backend(there, back, server.close)


class _Taken(Response):
    """An answer that turns the request's connection into a websocket, for `carry`."""

    def __init__(self, socket: WebSocket, carry: Callable[[], Awaitable[None]]) -> None:
        super().__init__(status_code=101)
        self._switching = socket.accept(frames.SUBPROTOCOL)
        self._socket = socket
        self._carry = carry

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"][TAKE_OVER](self._socket, self._switching)
        await self._carry()


def _refuse(socket: WebSocket, code: CloseCode, reason: str) -> Response:
    async def close() -> None:
        socket.close(code, reason)

    return _Taken(socket, close)
