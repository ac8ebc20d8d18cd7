"""Who may call through the door, by which name, and who it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import ManualClock, RealTime
from podyard.http.door import Door, host_name
from podyard.http.errors import answer
from podyard.http.guard import DOOR, AtDoor
from podyard.settings import Settings

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
URL = "https://tpu.example.com:8743"


class _App:
    """Remembers what passed, and answers as the guard does."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        at_door: AtDoor = scope[DOOR]
        if at_door.refusal is not None:
            await answer(at_door.refusal)(scope, _receive, send)
            return
        self.scope = scope
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def _ask(
    host: str, *, behind_proxy: bool = False, **headers: str
) -> tuple[int, dict[str, Any], str]:
    settings = Settings(
        data=Path("/x"),
        database_url="sqlite:////x/podyard.db",
        public_address="192.0.2.1",
        public_url=URL,
        tls=not behind_proxy,
        behind_proxy=behind_proxy,
    )
    app, sent = _App(), []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    raw = [(b"host", host.encode())]
    raw += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "method": "GET", "path": "/", "headers": raw, "scheme": "http",
        "server": ("198.51.100.7", 8743), "client": ("203.0.113.9", 5),
    }  # fmt: skip
    asyncio.run(Door(app, settings, ManualClock(START))(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], app.scope, json.loads(body).get("error", {}).get("message", "")


@pytest.mark.parametrize(
    "host",
    [
        "tpu.example.com:8743",
        "TPU.example.com",
        "192.0.2.1:8743",
        "198.51.100.7",
        "127.0.0.1:1",
        "localhost",
        "[::1]:8",
    ],
)
def test_own_names_pass(host: str) -> None:
    status, scope, _ = _ask(host)
    assert (status, scope[DOOR].refusal) == (200, None)


@pytest.mark.parametrize(
    "host", ["evil.example", "tpu.example.com.evil.example", "", "192.0.2.2", "[2001:db8::1]:8"]
)
def test_other_names_are_refused(host: str) -> None:
    status, scope, message = _ask(host)
    assert (status, scope) == (403, {})
    assert "is not this server's name" in message


def test_only_the_proxys_own_hop_says_who_called() -> None:
    _, scope, _ = _ask(
        "tpu.example.com",
        behind_proxy=True,
        x_forwarded_for="1.2.3.4, 203.0.113.77",
        x_forwarded_proto="http, https",
    )
    assert (scope["client"], scope["scheme"]) == (("203.0.113.77", 0), "https")


def test_without_a_proxy_nobody_can_say_who_they_are() -> None:
    _, scope, _ = _ask("tpu.example.com", x_forwarded_for="203.0.113.77", x_forwarded_proto="https")
    assert (scope["client"], scope["scheme"]) == (("203.0.113.9", 5), "http")


@pytest.mark.parametrize(
    "headers", [{"x_forwarded_for": "1.2.3.4, unknown"}, {"x_forwarded_proto": "ftp"}]
)
def test_what_a_proxy_never_says_is_refused(headers: dict[str, str]) -> None:
    assert _ask("tpu.example.com", behind_proxy=True, **headers)[0] == 400


@pytest.mark.parametrize(
    ("text", "name"), [("A:1", "a"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("a", "a"), ("", "")]
)
def test_host_name(text: str, name: str) -> None:
    assert host_name(text) == name
