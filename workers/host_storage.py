"""The way from a host to Cloud Storage's APIs: requests without a credential get that of the host's service account.

google-cloud-storage and gcsfs send none to an emulator. Like the metadata server, it is for the host's programs only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import h11

from podyard.base.errors import PodyardError
from podyard.http.pass_on import HEAD_BYTES_MAX, next_event, pass_on

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 256  # of one host at once: files of the host server
_CAPABILITY = "/_t/"  # a path that holds a token of the caller's

Tokens = Callable[[], Awaitable[tuple[str, int]]]


def environment(address: str) -> dict[str, str]:
    """What programs on a host are told. `address`: `host:port` of the relay."""
    return {
        "STORAGE_EMULATOR_HOST": f"http://{address}",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"http://{address}/storage/v1/",
        "TENSORSTORE_GCS_HTTP_URL": f"http://{address}",  # orbax
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


async def relay(listener: socket.socket, there: tuple[str, int], tokens: Tokens) -> asyncio.Server:
    """Passes on what is asked at `listener`."""
    joined = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal joined
        joined += 1
        try:
            if joined <= CONNECTIONS_MAX:
                await _requests(reader, writer, there, tokens)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError, PodyardError) as error:
            logger.info("a host's request for an object failed: %s", error)
        finally:
            joined -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return await asyncio.start_server(serve, sock=listener)


async def _requests(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: tuple[str, int], tokens: Tokens
) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    while isinstance(request := await next_event(connection, reader), h11.Request):
        path = request.target.decode("latin-1")
        if not path.startswith("/"):  # a client that takes this for its proxy
            parts = urlsplit(path)
            path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        headers = list(request.headers)
        if not path.startswith(_CAPABILITY) and not any(name == b"authorization" for name, _ in headers):
            token, _ = await tokens()
            headers.append((b"authorization", f"Bearer {token}".encode()))
        if not await pass_on(connection, request, there, path, headers, reader, writer):
            return
