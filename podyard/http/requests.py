"""Counts requests and gives each its ids, before everything else sees it.

A request has an id (`X-Request-Id`, the caller's if it is a plain word) and a trace (`traceparent`,
W3C Trace Context): both are in every log line that is written for it, and the id is in its answer.
Changes, failures and slow requests are one line each.
"""

from __future__ import annotations

import bisect
import logging
import re
import threading

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podyard.base import log
from podyard.base.clock import RealClock
from podyard.base.rng import secret_token

logger = logging.getLogger(__name__)

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SLOW_SECONDS = 1.0
FAILED_STATUS_MIN = 500
REQUEST_ID = b"x-request-id"
_PLAIN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = _READS | {"POST", "PUT", "PATCH", "DELETE"}
# What agents and replicas say several times a second would fill the log.
_REPORTS = (":sync", ":syncHosts", ":report", ":join", ":heartbeat")


class Counts:
    """Requests of one process since it started, by method and status, and how long they took.
    Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_status: dict[tuple[str, int], int] = {}
        self._buckets = [0] * (len(BUCKETS_SECONDS) + 1)
        self._seconds = 0.0

    def add(self, method: str, status: int, seconds: float) -> None:
        key = (method if method in _METHODS else "OTHER", status)
        with self._lock:
            self._by_status[key] = self._by_status.get(key, 0) + 1
            self._buckets[bisect.bisect_left(BUCKETS_SECONDS, seconds)] += 1
            self._seconds += seconds

    def lines(self) -> list[str]:
        """In Prometheus' text format."""
        with self._lock:
            by_status, buckets, seconds = dict(self._by_status), list(self._buckets), self._seconds
        name = "podyard_http_request_seconds"
        found = ["# TYPE podyard_http_requests_total counter"]
        for (method, status), count in sorted(by_status.items()):
            found.append(
                f'podyard_http_requests_total{{method="{method}",code="{status}"}} {count}'
            )
        found.append(f"# TYPE {name} histogram")
        total = 0
        for limit, count in zip((*BUCKETS_SECONDS, "+Inf"), buckets, strict=True):
            total += count
            found.append(f'{name}_bucket{{le="{limit}"}} {total}')
        return [*found, f"{name}_sum {seconds:.6f}", f"{name}_count {total}"]


class Requests:
    def __init__(self, app: ASGIApp, counts: Counts, clock: RealClock) -> None:
        self._app = app
        self._counts = counts
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(REQUEST_ID, b""))
        scope.setdefault("state", {})["request_id"] = request_id
        trace = _TRACE.fullmatch(headers.get(b"traceparent", b""))
        method, path, began = scope["method"], scope["path"], self._clock.monotonic_seconds()
        status = 0
        with log.fields(request=request_id, trace="" if trace is None else trace[1].decode()):

            async def send_and_count(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    message["headers"] = [
                        *message.get("headers", ()),
                        (REQUEST_ID, request_id.encode()),
                    ]
                await send(message)

            try:
                await self._app(scope, receive, send_and_count)
            finally:
                seconds = self._clock.monotonic_seconds() - began
                self._counts.add(method, status, seconds)
                is_change = method not in _READS and not path.endswith(_REPORTS)
                if (
                    is_change
                    or status >= FAILED_STATUS_MIN
                    or (seconds > SLOW_SECONDS and not _is_stream(path))
                ):
                    logger.info(
                        "%s %s -> %s in %.3f s", method, scope["path"], status or "cut", seconds
                    )


def _request_id(asked: bytes) -> str:
    return asked.decode() if _PLAIN.fullmatch(asked) else secret_token(8)


def _is_stream(path: str) -> bool:
    return path.endswith(("/stream", ":watch", "/connection:open"))
