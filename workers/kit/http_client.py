"""A small JSON client over HTTP for agents and replicas: one connection, kept open, no library that
costs memory."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from podyard.base.errors import Code, PodyardError
from podyard.http.trust import context_of_environment

_PIECE_BYTES = 1 << 20
CALL_SECONDS_MAX = 10.0  # well inside a lease: an API that takes longer is asked again


class JsonClient:
    """Calls of one API with one token. Thread-safe; calls take turns.

    `token`: one that may change is asked for with each call. `context`: what it trusts where the
    URL is https; by default what `context_of_environment` finds.
    Raises the server's PodyardError; UNAVAILABLE when nobody answers, or not in time.
    """

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str],
        timeout_seconds: float = CALL_SECONDS_MAX,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._context = (
            (context or context_of_environment(url)) if parts.scheme == "https" else None
        )
        self._host = parts.netloc
        self._given = token
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._answer(
            method, path, None if body is None else json.dumps(body, allow_nan=False).encode()
        )

    def send(self, method: str, path: str, data: bytes) -> dict[str, Any]:
        """The answer to bytes that are no JSON."""
        return self._answer(method, path, data, "application/octet-stream")

    def _answer(
        self, method: str, path: str, body: bytes | None, kind: str = "application/json"
    ) -> dict[str, Any]:
        with self._lock:
            status, data = self._exchange(method, path, body, kind)
        try:
            answer = json.loads(data)
        except ValueError:
            raise PodyardError(
                Code.UNAVAILABLE, f"{self._host} answered {status} without JSON"
            ) from None
        if status < 400 and isinstance(answer, dict):
            return answer
        raise _error(answer, status)

    def content(self, path: str) -> Iterator[bytes]:
        """The pieces of an answer that is not JSON, over a connection that no other call waits
        for."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            response = connection.getresponse()
            if response.status >= 400:
                raise _error(json.loads(response.read()), response.status)
            while piece := response.read(_PIECE_BYTES):
                yield piece
            if response.length:
                raise PodyardError(Code.UNAVAILABLE, f"{self._host} has broken off its answer")
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise PodyardError(Code.UNAVAILABLE, f"{self._host} does not answer: {error}") from None
        finally:
            connection.close()

    @property
    def _token(self) -> str:
        return self._given if isinstance(self._given, str) else self._given()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _exchange(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        # A kept connection may have been closed by a restarted server: that alone is worth a second
        # try.
        for fresh in (self._connection is None, True):
            if fresh:
                self._drop()
                self._connection = self._connect()
            assert self._connection is not None
            try:
                self._connection.request(method, path, body, headers)
                response = self._connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if fresh:
                    raise PodyardError(
                        Code.UNAVAILABLE, f"{self._host} does not answer: {error}"
                    ) from None
        raise AssertionError("unreachable")

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, timeout=self._timeout_seconds)
        return http.client.HTTPSConnection(
            self._host, timeout=self._timeout_seconds, context=self._context
        )

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _error(answer: Any, status: int) -> PodyardError:
    try:
        error = answer["error"]
        return PodyardError(Code[error["status"]], str(error["message"]))
    except (KeyError, TypeError):
        return PodyardError(Code.UNKNOWN, f"the API answered {status} without saying why")
