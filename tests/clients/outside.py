"""What is not Podyard, as the clients here see it: a Compute Engine without machines, and no internet.

Some clients list Compute Engine's machines next to TPU nodes. `podyard run` passes such requests on, through the proxy
that its user had set: this is that proxy.
"""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from podyard.base.clock import OsClock
from podyard.cli import redirect_tls

COMPUTE = "compute.googleapis.com"
IAM = "iamcredentials.googleapis.com"  # google-auth asks it for a key's regions beside its work, and can do without
EMPTY_LIST = b'{"kind": "compute#instanceList"}'  # as googleapis.com says it: `items` is not there


class Outside(ThreadingHTTPServer):
    """Serves while the context lasts. `refused`: what was asked for beyond the list of machines."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Proxy)
        self.context, authority = redirect_tls.server_context(folder, [COMPUTE], ["http/1.1"], OsClock())
        self.refused: list[str] = []
        self.lists = 0
        self._bundle = folder / "roots.pem"
        self._bundle.write_bytes(authority)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def environ(self) -> dict[str, str]:
        """With these variables a command sees nothing but this."""
        proxy = f"http://127.0.0.1:{self.server_address[1]}"
        return {
            **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY"), proxy),
            **dict.fromkeys(redirect_tls.BUNDLE_VARIABLES, str(self._bundle)),
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is seen by the client that it was of."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Outside

    def refuse(self) -> None:
        if self.path != f"{IAM}:443":
            self.server.refused.append(f"{self.command} {self.path}")
        self.close_connection = True
        self.send_error(403, "there is nothing but Podyard")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_CONNECT = refuse

    def log_message(self, format: str, *args: Any) -> None:
        """The test says what went wrong."""


class _Proxy(_Handler):
    def do_CONNECT(self) -> None:
        if self.path != f"{COMPUTE}:443":
            self.refuse()
            return
        self.close_connection = True
        self.send_response_only(200)
        self.end_headers()
        with self.server.context.wrap_socket(self.connection, server_side=True) as inside:
            _Compute(inside, self.client_address, self.server)


class _Compute(_Handler):
    connection: ssl.SSLSocket

    def do_GET(self) -> None:
        if not self.path.split("?")[0].endswith("/instances"):
            self.refuse()
            return
        self.server.lists += 1
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(EMPTY_LIST)))
        self.end_headers()
        self.wfile.write(EMPTY_LIST)
