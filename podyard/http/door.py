"""The door: what is asked through the port that other machines reach.

The door stands before the guard, which gives the door's refusals as its own. It knows under which
names this Podyard may be called there, how much one caller may ask, and who called: behind a proxy
the last address of X-Forwarded-For, which the proxy itself has written.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError
from podyard.http.guard import DOOR, LOOPBACK_HOSTS, AtDoor, check_host, client_address
from podyard.http.limits import DoorLimits
from podyard.settings import Settings


class Door:
    """`app` behind the door's port."""

    def __init__(self, app: ASGIApp, settings: Settings, clock: RealClock) -> None:
        self._app = app
        self._limits = DoorLimits(clock)
        self._behind_proxy = settings.behind_proxy
        named = (
            urlsplit(settings.public_url or "").hostname,
            settings.public_address,
            socket.gethostname(),
        )
        self._names = LOOPBACK_HOSTS | {name.lower() for name in named if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        refusal: PodyardError | None = None
        try:
            if self._behind_proxy:
                _take_forwarded(scope, headers)
            self._check_host(scope, headers)
            self._limits.on_request(client_address(scope))
        except PodyardError as error:
            refusal = error
        scope[DOOR] = AtDoor(self._limits, refusal)
        await self._app(scope, receive, send)

    def _check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        check_host(host)
        name = host_name(host)
        # The address of this very connection is right, too: a machine has several.
        own = scope["server"][0] if scope.get("server") else None
        if name not in self._names and name != own:
            raise PodyardError(
                Code.PERMISSION_DENIED, f"Host {name!r} is not this server's name; see --public-url"
            )


def host_name(host: str) -> str:
    """The name or address in a Host header, in small letters, without port and brackets."""
    name, separator, port = host.rpartition(":")
    if not separator or not port.isdigit():
        name = host
    return name.strip("[]").lower()


def _take_forwarded(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Takes client and scheme from what the proxy says. Raises INVALID_ARGUMENT for anything but an
    address."""
    scheme = headers.get(b"x-forwarded-proto")
    if scheme is not None:
        last = scheme.decode("latin-1").rpartition(",")[2].strip().lower()
        if last not in ("http", "https"):
            raise PodyardError(
                Code.INVALID_ARGUMENT, f"X-Forwarded-Proto {last!r} must be http or https"
            )
        scope["scheme"] = last
    # Repeated headers are one list (RFC 9110, section 5.3); a dictionary has kept the last one, and
    # the last hop is what our proxy wrote. What stands before it is the client's word.
    hops = headers.get(b"x-forwarded-for")
    if hops is None:
        return
    text = hops.decode("latin-1").rpartition(",")[2].strip()
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        raise PodyardError(
            Code.INVALID_ARGUMENT, f"X-Forwarded-For ends with {text!r}: not an address"
        ) from None
    scope["client"] = (str(address), 0)
