"""Requests are counted, and have ids that are in the log and in the answer."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import httpx
import pytest
from anyio import to_thread
from starlette.types import Receive, Scope, Send

from podyard.base import log
from podyard.base.clock import ManualClock, RealTime
from podyard.http.requests import BUCKETS_SECONDS, Counts, Requests

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Yield what is written to the log, as processes of the platform write it."""
    root, written = logging.getLogger(), io.StringIO()
    before, level = root.handlers[:], root.level
    log.configure()
    handler = root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(written)
    yield written
    root.handlers[:] = before
    root.setLevel(level)


class App:
    """Answers with a status after some time; in a thread it says something and learns which
    operation it began."""

    def __init__(self) -> None:
        self.clock = ManualClock(RealTime.from_rfc3339("2026-03-01T00:00:00Z"))
        self.counts = Counts()
        self.status, self.seconds = 200, 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.clock.advance(self.seconds)
        await to_thread.run_sync(self._work)
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def _work(self) -> None:
        logging.getLogger("inside").info("working with token=secret1")
        log.note(operation="operation-7")

    async def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        transport = httpx.ASGITransport(Requests(self, self.counts, self.clock))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, path, headers=headers)


async def test_ids_are_in_every_line_of_a_request_and_in_its_answer(lines: io.StringIO) -> None:
    app = App()
    trace = f"00-{TRACE}-00f067aa0ba902b7-01"
    answer = await app.ask("POST", "/v2/nodes", {"X-Request-Id": "mine-1", "traceparent": trace})
    assert answer.headers["x-request-id"] == "mine-1"
    logging.getLogger("outside").info("later")
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    inside, done, later = (entry for entry in said if entry["logger"] != "httpx")
    assert (inside["request"], inside["trace"], inside["message"]) == (
        "mine-1",
        TRACE,
        "working with token=[redacted]",
    )
    assert (done["request"], done["operation"]) == ("mine-1", "operation-7")
    assert done["message"] == "POST /v2/nodes -> 200 in 0.000 s"
    assert not {"request", "trace", "operation"} & later.keys()


@pytest.mark.parametrize("asked", ["", "two words", "x" * 65, 'a"b'])
async def test_an_id_that_is_not_a_plain_word_is_replaced(asked: str, lines: io.StringIO) -> None:
    given = (await App().ask("GET", "/", {"X-Request-Id": asked})).headers
    assert given["x-request-id"].isascii()
    assert given["x-request-id"] not in ("", asked)
    assert "trace" not in json.loads(lines.getvalue().splitlines()[0])


@pytest.mark.parametrize(
    ("method", "path", "status", "seconds", "is_logged"),
    [
        ("GET", "/v2/nodes", 200, 0.01, False),
        ("GET", "/v2/nodes", 404, 0.01, False),
        ("GET", "/v2/nodes", 503, 0.01, True),
        ("GET", "/v2/nodes", 200, 1.5, True),
        ("GET", "/podyard/v1/x/stream", 200, 60.0, False),
        ("DELETE", "/v2/nodes/a", 200, 0.01, True),
        ("POST", "/podyard/v1/agents/local:sync", 200, 0.01, False),
        ("POST", "/podyard/v1/agents/local:sync", 500, 0.01, True),
    ],
)
async def test_changes_failures_and_slow_requests_are_one_line(
    method: str, path: str, status: int, seconds: float, is_logged: bool, lines: io.StringIO
) -> None:
    app = App()
    app.status, app.seconds = status, seconds
    await app.ask(method, path)
    logged = [line for line in lines.getvalue().splitlines() if "->" in json.loads(line)["message"]]
    assert len(logged) == is_logged


async def test_requests_are_counted_by_status_and_time() -> None:
    app = App()
    for status, seconds in ((200, 0.001), (200, 0.04), (200, 0.06), (404, 99.0)):
        app.status, app.seconds = status, seconds
        await app.ask("GET", "/")
    await app.ask("BREW", "/")
    found = dict(line.rsplit(" ", 1) for line in app.counts.lines() if not line.startswith("#"))
    assert found['podyard_http_requests_total{method="GET",code="200"}'] == "3"
    assert found['podyard_http_requests_total{method="OTHER",code="404"}'] == "1"
    name = "podyard_http_request_seconds_bucket"
    assert [found[f'{name}{{le="{limit}"}}'] for limit in (0.005, 0.05, 0.1, 30.0, "+Inf")] == list(
        "12335"
    )
    assert (found["podyard_http_request_seconds_count"], len(BUCKETS_SECONDS)) == ("5", 12)
