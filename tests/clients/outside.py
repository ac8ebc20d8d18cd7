"""What is neither Podyard nor Google, as the clients here see it: a proxy that refuses everything,
and says so."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class Outside(ThreadingHTTPServer):
    """Serves while the context lasts. `refused`: what `podyard run` passed on to the proxy that its
    user had set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refuse)
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def environ(self) -> dict[str, str]:
        """With these variables a command sees nothing but this."""
        return dict.fromkeys(
            ("HTTPS_PROXY", "HTTP_PROXY"), f"http://127.0.0.1:{self.server_address[1]}"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is seen by the client that it was of."""


class _Refuse(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Outside

    def do_CONNECT(self) -> None:
        self.server.refused.append(f"{self.command} {self.path}")
        self.close_connection = True
        self.send_error(403, "there is nothing but Podyard")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_CONNECT

    def log_message(self, format: str, *args: Any) -> None:
        """The test says what went wrong."""
