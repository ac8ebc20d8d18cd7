"""A webhook is sent once, signed, and how it went is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock, PlatformTime, RealTime
from podyard.base.money import Amount
from podyard.base.rng import Streams
from podyard.control.access import identity
from podyard.control.platform import webhooks
from podyard.db.access import projects
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.billing import webhooks as table
from podyard.domain.budget import Budget, BudgetScope
from podyard.domain.project import Project
from podyard.domain.webhook import WebhookRequest
from podyard.workers.tasks import webhooks as worker
from podyard.workers.tasks.webhooks import deliver
from tests.listener import listening

BUDGET = Budget(
    "k",
    "demo",
    "b",
    BudgetScope.PROJECT,
    "",
    Amount(),
    "month",
    (),
    (),
    (),
    "s3cret",
    PlatformTime(0),
)


def _thanks(request: BaseHTTPRequestHandler, status: int) -> None:
    request.send_response(status)
    request.end_headers()
    request.wfile.write(b"thanks")


@contextlib.contextmanager
def _receiver(
    status: int = 200, answer: Callable[[BaseHTTPRequestHandler, int], None] = _thanks
) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    got: list[tuple[dict[str, str], bytes]] = []

    def receive(request: BaseHTTPRequestHandler, body: bytes) -> None:
        got.append((dict(request.headers), body))
        with contextlib.suppress(OSError):  # the sender has hung up
            answer(request, status)

    with listening(receive) as url:
        yield f"{url}/hook?a=b", got


@contextlib.contextmanager
def _waiting(folder: Path, url: str) -> Iterator[tuple[Database, str]]:
    database = Database(
        f"sqlite:///{folder / 'podyard.db'}", ManualClock(RealTime(10**18)), Streams(0)
    )
    with contextlib.closing(database):
        migrations.upgrade(database)
        database.run(lambda uow: platform_clock.set_up(uow, ClockMode.SYSTEM))
        database.run(lambda uow: webhooks.put(uow, BUDGET, "event", url, {"kind": "threshold"}))
        (row,) = database.read(lambda uow: uow.all(select(table)))
        yield database, row["webhook_id"]


def _row(database: Database) -> Any:
    (row,) = database.read(lambda uow: uow.all(select(table)))
    return row


def test_it_is_sent_once_with_its_signature(tmp_path: Path) -> None:
    with _receiver(200) as (url, got), _waiting(tmp_path, url) as (database, webhook_id):
        assert deliver(database, webhook_id)
        assert not deliver(database, webhook_id)
        ((headers, body),) = got
        assert body == b'{"kind":"threshold"}'
        assert (
            headers[webhooks.SIGNATURE_HEADER]
            == f"sha256={hmac.new(b's3cret', body, hashlib.sha256).hexdigest()}"
        )
        row = _row(database)
        assert (row["tries"], row["next_try"], row["outcome"]) == (1, None, "200 thanks")


def test_one_that_is_refused_is_tried_again_later(tmp_path: Path) -> None:
    with _receiver(503) as (url, got), _waiting(tmp_path, url) as (database, webhook_id):
        assert not deliver(database, webhook_id)
        assert not deliver(database, webhook_id)  # it is not due yet
        row = _row(database)
        assert (len(got), row["tries"], row["outcome"]) == (1, 1, "503 thanks")
        assert row["next_try"] == RealTime(10**18).plus_seconds(webhooks.WAITS_SECONDS[0])


def test_nobody_at_the_address_is_an_outcome(tmp_path: Path) -> None:
    with _waiting(tmp_path, "http://127.0.0.1:1/") as (database, webhook_id):
        assert not deliver(database, webhook_id)
        assert "ConnectionRefusedError" in _row(database)["outcome"]


def _send(url: str) -> tuple[bool, str]:
    return worker.send(WebhookRequest("webhook-1", "event", "demo", url, "{}", "s3cret", fence=1))


def _named(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """A resolver that knows one answer after the other; the names that it was asked for."""
    asked: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, 1, 6, "", (one, port))
            for one in found
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


def test_a_name_is_resolved_once_and_that_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _receiver() as (url, got):
        asked = _named(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
        assert _send(url.replace("127.0.0.1", "hooks.example")) == (True, "200 thanks")
    assert asked == ["hooks.example"]
    assert got[0][0]["Host"].startswith("hooks.example:")


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1"]
)
def test_a_name_that_stands_for_what_may_not_be_notified_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    with _receiver() as (url, got):
        _named(monkeypatch, ["127.0.0.1", address])
        taken, outcome = _send(url.replace("127.0.0.1", "hooks.example"))
    assert (taken, got) == (False, [])
    assert outcome.startswith(f"url: hooks.example is {address}")


def test_a_shared_yard_sends_nothing_into_its_own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODYARD_WEBHOOK_ADDRESSES", "public")
    with _receiver() as (url, got):
        assert "not of the public Internet" in _send(url)[1]
        _named(monkeypatch, ["127.0.0.1"])
        assert "not of the public Internet" in _send(url.replace("127.0.0.1", "hooks.example"))[1]
    assert got == []


def test_where_projects_have_different_owners_nothing_is_sent_into_the_own_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _receiver() as (url, got):
        request = WebhookRequest("webhook-1", "event", "demo", url, "{}", "s3cret", fence=1)
        named = dataclasses.replace(request, url=url.replace("127.0.0.1", "hooks.example"))
        _named(monkeypatch, ["127.0.0.1"])
        for asked in (request, named):
            taken, outcome = worker.send(asked, public_only=True)
            assert not taken
            assert "projects here have different owners" in outcome
    assert got == []


def test_projects_of_different_owners_are_tenants(database: Database) -> None:
    def make(uow: UnitOfWork) -> list[bool]:
        found = []
        for project in ("one", "two"):
            projects.insert(uow, Project(project, len(project), {}, uow.now, compute_metadata={}))
            found.append(identity.has_tenants(uow))
        identity.bind(uow, "ann@example.com", "one", "tpu.admin")
        found.append(identity.has_tenants(uow))
        identity.bind(uow, "ann@example.com", "one", "owner")
        found.append(identity.has_tenants(uow))
        identity.bind(uow, "ann@example.com", "two", "owner")
        return [*found, identity.has_tenants(uow)]

    assert database.run(make) == [False, False, False, True, False]


def test_the_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with _receiver() as (url, got):
        _named(monkeypatch, ["127.0.0.9", "127.0.0.1"])
        assert _send(url.replace("127.0.0.1", "hooks.example"))[0]
    assert len(got) == 1


def test_redirects_are_not_followed() -> None:
    def redirect(request: BaseHTTPRequestHandler, status: int) -> None:
        request.send_response(status)
        request.send_header("Location", "/elsewhere")
        request.end_headers()

    for status in (301, 302, 307, 308):
        with _receiver(status, redirect) as (url, got):
            assert _send(url) == (False, str(status))
            assert len(got) == 1


def test_no_more_of_an_answer_is_read_than_is_kept() -> None:
    def much(request: BaseHTTPRequestHandler, status: int) -> None:
        request.send_response(status)
        request.end_headers()
        while True:  # until the sender has hung up
            request.wfile.write(b"a" * 65_536)

    with _receiver(200, much) as (url, _):
        taken, outcome = _send(url)
    assert (taken, outcome) == (True, "200 " + "a" * worker.ANSWER_BYTES_MAX)


def test_whoever_answers_a_byte_now_and_then_does_not_hold_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "ANSWER_SECONDS_MAX", 0.2)

    def slowly(request: BaseHTTPRequestHandler, _status: int) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(200):
            request.wfile.write(b"x")
            time.sleep(0.05)

    with _receiver(200, slowly) as (url, _):
        assert _send(url) == (False, "no answer within 0.2 s")


def test_a_resolver_that_does_not_answer_does_not_hold_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(worker, "RESOLVE_SECONDS_MAX", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(10))
    assert _send("http://hooks.example/") == (False, "hooks.example was not resolved within 0.1 s")
    answered.set()


def test_a_request_that_workers_die_of_is_given_up_and_says_so(tmp_path: Path) -> None:
    with _waiting(tmp_path, "http://127.0.0.1:1/") as (database, webhook_id):
        for _ in range(webhooks.TRIES_MAX):
            assert database.run(lambda uow: webhooks.claim(uow, webhook_id)) is not None
            database.run(
                lambda uow: uow.update(
                    table, {"webhook_id": webhook_id}, {"next_try": uow.real_now}
                )
            )
        assert not deliver(database, webhook_id)
        row = _row(database)
        assert row["next_try"] is None
        assert row["outcome"].startswith("given up after 5 tries")
