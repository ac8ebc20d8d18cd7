"""Requests that do not arrive: their connections are closed in time, and nothing else is."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from podyard.api.server import ReadLimits, Server, config
from podyard.base.clock import OsClock
from podyard.domain.principal import Principal
from podyard.http.guard import Guard

LIMIT_SECONDS = 0.3
# of a connection that must be closed: far beyond the limit, so that only a hang fails
ENDS_SECONDS_MAX = 20.0
HEAD = (
    b"POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
    b"x\r\nContent-Length: 10\r\n\r\n"
)


async def _echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


async def _refuse(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("no", 403)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = Starlette(
        routes=[
            Route("/echo", _echo, methods=["POST"]),
            Route("/refuse", _refuse, methods=["POST"]),
        ]
    )
    app.add_middleware(Guard, authenticate=lambda token: Principal(token, {}), clock=OsClock())
    beats: list[float] = []
    limits = ReadLimits(head_seconds=LIMIT_SECONDS, body_seconds=LIMIT_SECONDS)
    server: uvicorn.Server = Server(
        config(app, "127.0.0.1", 0, limits), lambda: beats.append(time.monotonic())
    )
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()
    listener.close()
    assert beats


def _all(connection: socket.socket) -> bytes:
    """Return what comes until the server closes."""
    connection.settimeout(ENDS_SECONDS_MAX)
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


def _receive_echo(connection: socket.socket) -> None:
    received = b""
    while not received.endswith(b"0123456789"):
        part = connection.recv(65536)
        assert part, received
        received += part


@pytest.mark.parametrize(
    "sent", [HEAD[:30], HEAD, HEAD + b"half"], ids=["half a head", "no body", "half a body"]
)
def test_half_a_request_is_answered_with_408_and_closed(
    sent: bytes, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        received = _all(connection)
    assert received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b'"DEADLINE_EXCEEDED"' in received
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_request_that_trickles_in_gains_no_time(port: int) -> None:
    received = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(LIMIT_SECONDS / 10)
        connection.sendall(HEAD.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked"))
        deadline = time.monotonic() + ENDS_SECONDS_MAX
        while not received:
            assert time.monotonic() < deadline
            with contextlib.suppress(TimeoutError):
                connection.sendall(b"1\r\nx\r\n")
                received = connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 408")


def test_a_connection_without_a_byte_is_closed_without_a_word(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert _all(connection) == b""


def test_a_kept_connection_may_be_idle_for_longer(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(ENDS_SECONDS_MAX)
        for _ in range(2):
            connection.sendall(HEAD + b"0123456789")
            _receive_echo(connection)
            time.sleep(2 * LIMIT_SECONDS)


def test_after_a_kept_connection_half_a_request_is_closed_all_the_same(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(ENDS_SECONDS_MAX)
        connection.sendall(HEAD + b"0123456789")
        _receive_echo(connection)
        connection.sendall(HEAD[:30])
        assert _all(connection).startswith(b"HTTP/1.1 408")


def test_a_refused_upload_gets_one_answer_and_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(HEAD.replace(b"/echo", b"/refuse"))
        received = _all(connection)
    assert received.startswith(b"HTTP/1.1 403")
    assert received.count(b"HTTP/1.1") == 1


def test_a_client_that_disconnects_is_no_error(port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(HEAD + b"half")
        time.sleep(LIMIT_SECONDS / 10)
    deadline = time.monotonic() + ENDS_SECONDS_MAX
    while not any("disconnected" in record.getMessage() for record in caplog.records):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_body_in_pieces_arrives_whole_and_the_request_behind_it_is_answered(port: int) -> None:
    """No byte of it is lost, doubled or taken for the next request."""
    body = bytes(range(256)) * 1100
    head = HEAD.replace(b"Content-Length: 10", b"Content-Length: %d" % len(body))
    ending = body[-7:] + HEAD.replace(b"10\r\n\r\n", b"4\r\nConnection: close\r\n\r\n") + b"next"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head + body[:5])
        for start, stop in ((5, 6), (6, 70_000), (70_000, 200_000), (200_000, len(body) - 7)):
            connection.sendall(body[start:stop])
            time.sleep(0.01)  # so that the pieces are read apart
        connection.sendall(ending)
        answer = _all(connection)
    first, _, rest = answer.partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200")
    assert rest[: len(body)] == body
    assert rest[len(body) :].startswith(b"HTTP/1.1 200")
    assert rest.endswith(b"\r\n\r\nnext")
