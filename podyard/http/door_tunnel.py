"""The client's side of tunnels through the door: one TLS connection for each."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import Callable
from typing import cast
from urllib.parse import quote, urlsplit

from typing_extensions import override

from podyard.http.splice import End
from podyard.http.tunnels import PROTOCOL

OPEN_SECONDS_MAX = 75.0  # to the door, and until a host runs there
HEAD_BYTES_MAX = 16 << 10  # of the door's answer


@dataclasses.dataclass(frozen=True, slots=True)
class DoorTarget:
    """The target of tunnels, and the credential for it. `refused` hears why one could not be
    opened."""

    url: str
    token: str
    tls: ssl.SSLContext
    refused: Callable[[str], None]

    async def join(self, client: End, target: str, address: str = "") -> None:
        """Gives `client` its other end; closes it where there is none."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        more = f"&address={quote(address)}" if address else ""
        head = (
            f"GET /podyard/v1/connection:open?target={target}{more} HTTP/1.1\r\nHost: "
            f"{parts.netloc}\r\n"
            f"Authorization: Bearer {self.token}\r\nConnection: Upgrade\r\nUpgrade: "
            f"{PROTOCOL}\r\n\r\n"
        )
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[str] = loop.create_future()
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                await loop.create_connection(
                    lambda: _DoorEnd(client, head.encode("latin-1"), answered),
                    host,
                    parts.port or 443,
                    ssl=self.tls,
                    server_hostname=host,
                )
                refusal = await answered
        except (OSError, TimeoutError) as error:
            refusal = f"{parts.netloc} does not answer: {error or 'timeout'}"
        if refusal:
            self.refused(f"{address or target}: {refusal}")
            client.transport.close()


class _DoorEnd(End):
    """The end at the door: asks for the tunnel, and is joined with the client's end once it
    stands."""

    def __init__(self, client: End, head: bytes, answered: asyncio.Future[str]) -> None:
        super().__init__()
        self._client = client
        self._request = head
        self._answered = answered
        self._head = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    @override
    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end and len(self._head) < HEAD_BYTES_MAX:
            return
        status = head.split(b"\r\n", 1)[0].decode("latin-1").removeprefix("HTTP/1.1 ")
        if not status.startswith("101"):
            self._answer(f"the server answered {status}")
            self.transport.close()
            return
        self.other = self._client
        self._client.join(self)
        if rest:
            super().data_received(rest)
        self._answer("")

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self._answer(f"the connection was closed{f': {error}' if error else ''}")
        super().connection_lost(error)

    def _answer(self, refusal: str) -> None:
        if not self._answered.done():
            self._answered.set_result(refusal)
