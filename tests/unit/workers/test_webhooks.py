"""A webhook is sent once, signed, and how it went is kept."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from sqlalchemy import select

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock, RealTime
from podyard.base.rng import Streams
from podyard.control import webhooks
from podyard.db import platform_clock
from podyard.db.tables_billing import webhooks as table
from podyard.db.unit_of_work import Database
from podyard.workers.webhooks import deliver

BUDGET = {"project": "demo", "secret": "s3cret"}


@contextlib.contextmanager
def _receiver(status: int) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    got: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"thanks")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook?a=b", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def _waiting(folder: Path, url: str) -> Iterator[tuple[Database, str]]:
    database = Database(f"sqlite:///{folder / 'podyard.db'}", ManualClock(RealTime(10**18)), Streams(0))
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
        assert headers[webhooks.SIGNATURE_HEADER] == f"sha256={hmac.new(b's3cret', body, hashlib.sha256).hexdigest()}"
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
