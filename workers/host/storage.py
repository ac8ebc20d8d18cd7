"""The way from a host to Cloud Storage's APIs: requests without a credential get that of the host's
service account.

google-cloud-storage and gcsfs send none to an emulator. Like the metadata server, it is for the
host's programs only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import h11

from podyard.base.clock import RealClock
from podyard.base.errors import PodyardError
from podyard.base.files import write_atomically
from podyard.domain.host import LOOPBACK
from podyard.http import trust
from podyard.http.door_tunnel import DoorTarget
from podyard.http.gcloud_authority import authority
from podyard.http.pass_on import HEAD_BYTES_MAX, next_event, pass_on
from podyard.http.splice import WaitingEnd

logger = logging.getLogger(__name__)

TLS_PORT = 443
ROOTS_FILE = ".podyard-roots.pem"  # in a host's home: what its programs trust
CONNECTIONS_MAX = 256  # of one host at once: files of the host server
_CAPABILITY = "/_t/"  # a path that holds a token of the caller's

Tokens = Callable[[], Awaitable[tuple[str, int]]]


def environment(address: str) -> dict[str, str]:
    """Return what programs on a host are told. `address`: `host:port` of the relay."""
    return {
        "STORAGE_EMULATOR_HOST": f"http://{address}",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"http://{address}/storage/v1/",
        "TENSORSTORE_GCS_HTTP_URL": f"http://{address}",  # orbax
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


def write_roots(data: Path, home: Path, clock: RealClock) -> None:
    """Write the roots that the machine trusts, and the one who certifies Cloud Storage's names
    here. Raises OSError."""
    system = ssl.get_default_verify_paths().cafile
    known = b"" if system is None or not Path(system).exists() else Path(system).read_bytes()
    write_atomically(home / ROOTS_FILE, known + b"\n" + authority(data, clock).certificate, 0o644)


async def open_tunnels(url: str, token: Callable[[], str]) -> tuple[asyncio.Server, int]:
    """(server, its port on this machine's loopback): Cloud Storage's APIs of a Podyard elsewhere,
    through its door. Who connects there has no credential by that: the APIs ask for one."""
    tls = trust.context_of_environment(url)

    async def join(client: WaitingEnd) -> None:
        await DoorTarget(
            url, token(), tls, lambda why: logger.warning("no tunnel to %s", why)
        ).join(client, "storage")

    server = await asyncio.get_running_loop().create_server(lambda: WaitingEnd(join), LOOPBACK, 0)
    return server, int(server.sockets[0].getsockname()[1])


async def relay(
    listener: socket.socket,
    there: tuple[str, int],
    tokens: Tokens,
    context: ssl.SSLContext | None = None,
) -> asyncio.Server:
    """Passes on what is asked at `listener`, over TLS with a `context`."""
    joined = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal joined
        joined += 1
        try:
            if joined <= CONNECTIONS_MAX:
                await _requests(reader, writer, there, tokens, is_https=context is not None)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError, PodyardError) as error:
            logger.info("a host's request for an object failed: %s", error)
        finally:
            joined -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return await asyncio.start_server(serve, sock=listener, ssl=context)


async def _requests(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there: tuple[str, int],
    tokens: Tokens,
    *,
    is_https: bool,
) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    while isinstance(request := await next_event(connection, reader), h11.Request):
        path = request.target.decode("latin-1")
        if not path.startswith("/"):  # a client that takes this for its proxy
            parts = urlsplit(path)
            path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        headers = list(request.headers)
        if is_https:  # links lead back the same way
            headers.append((b"x-forwarded-proto", b"https"))
        if not path.startswith(_CAPABILITY) and not any(
            name == b"authorization" for name, _ in headers
        ):
            token, _ = await tokens()
            headers.append((b"authorization", f"Bearer {token}".encode()))
        if not await pass_on(connection, request, there, path, headers, reader, writer):
            return
