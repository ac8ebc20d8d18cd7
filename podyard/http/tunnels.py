"""Tunnels through the door: an HTTP request with `Upgrade: podyard-tunnel` whose connection is then
passed on.

A tunnel lives as long as the credential that opened it: a revoked one ends its tunnels within
`CHECK_SECONDS` and the time of one look.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from podyard.base.errors import Code, PodyardError
from podyard.http.splice import End

logger = logging.getLogger(__name__)

PROTOCOL = "podyard-tunnel"
# Extension of a request's scope: says 101 by these bytes, and gives its connection to another
# protocol.
TAKE_OVER = "podyard.take_over"
SWITCHING = (
    f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n"
).encode()
# between two looks at a credential; with one look a revoked one ends well within five
CHECK_SECONDS = 2.0
TUNNELS_MAX = 2048  # of one API process; each is two connections, and the process has 65,536 files
TUNNELS_PER_CALLER_MAX = 1024  # two `ssh --worker=all` on the 512 hosts of a v4-4096
CONNECT_SECONDS_MAX = 10.0  # to the target, which is on this machine or an agent's


class Tunnels:
    """The open tunnels of a process. `authenticate` raises for a credential that is not valid any
    more; it blocks."""

    def __init__(self, authenticate: Callable[[str], object]) -> None:
        self._authenticate = authenticate
        self._open: Counter[str] = Counter()

    async def open(self, caller: str, credential: str, host: str, port: int) -> Response:
        """An answer that turns the request's connection into a tunnel to `host`:`port`.

        Raises RESOURCE_EXHAUSTED beyond the limits, UNAVAILABLE when the target does not answer.
        """
        self.require_room(caller)
        ended = asyncio.Event()
        target = End(on_end=ended.set)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: target, host, port
                )
        except (OSError, TimeoutError) as error:
            text = f"{host}:{port} does not answer: {error or 'timeout'}"
            raise PodyardError(Code.UNAVAILABLE, text) from None
        transport.pause_reading()
        return _Tunnel(self, caller, credential, target, ended)

    def require_room(self, caller: str) -> None:
        """Raises RESOURCE_EXHAUSTED for one tunnel too many."""
        if self._open.total() >= TUNNELS_MAX or self._open[caller] >= TUNNELS_PER_CALLER_MAX:
            most = min(TUNNELS_MAX, TUNNELS_PER_CALLER_MAX)
            raise PodyardError(
                Code.RESOURCE_EXHAUSTED,
                f"{caller} has {self._open[caller]} open tunnels, of {most}",
            )

    async def hold(self, caller: str, credential: str, ended: asyncio.Event) -> None:
        """Returns when the tunnel has ended, or its credential has."""
        self._open[caller] += 1
        try:
            while True:
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        await ended.wait()
                    return
                except TimeoutError:
                    if not await self._is_valid(credential):
                        return
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    async def _is_valid(self, credential: str) -> bool:
        try:
            await to_thread.run_sync(self._authenticate, credential)
        except PodyardError as error:
            if error.code in (Code.UNAUTHENTICATED, Code.INVALID_ARGUMENT):
                return False
            logger.warning("a tunnel's credential could not be checked: %s", error.message)
        return True


class _Tunnel(Response):
    def __init__(
        self, tunnels: Tunnels, caller: str, credential: str, target: End, ended: asyncio.Event
    ) -> None:
        super().__init__(status_code=101)
        self._tunnels = tunnels
        self._caller = caller
        self._credential = credential
        self._target = target
        self._ended = ended

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = End(self._target, on_end=self._ended.set)
        try:
            scope["extensions"][TAKE_OVER](client, SWITCHING)
            await self._tunnels.hold(self._caller, self._credential, self._ended)
        finally:
            for end in (client, self._target):
                # A caller whose credential has ended gets nothing more, not even what waits to be
                # sent.
                transport = getattr(end, "transport", None)
                if transport is not None and not self._ended.is_set():
                    transport.abort()
                elif transport is not None:
                    transport.close()
