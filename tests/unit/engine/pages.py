"""Reads a page, and asks the console for one without a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Protocol

import httpx

from podyard import migrations
from podyard.api.app import create_app, prepare
from podyard.base.clock import ManualClock, RealTime
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.settings import from_environment
from podyard.web.front import explain, lesson


class Reader(HTMLParser):
    """The parts of a page: elements with their attributes, and the text outside of script and
    style."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data

    def having(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in attributes]


class Get(Protocol):
    def __call__(self, path: str, *, signed_in: bool = True) -> httpx.Response: ...


@contextlib.contextmanager
def open_console(folder: Path) -> Iterator[Get]:
    """The console's pages that explain something, for the owner of the project demo."""
    settings = from_environment({"PODYARD_DATA": str(folder)})
    clock = ManualClock(RealTime.from_rfc3339("2026-03-01T00:00:00Z"))
    database = Database(settings.database_url, clock)
    migrations.upgrade(database)
    prepare(settings, database)
    app = create_app(
        settings, database, instant_fleet(), clock, more=lambda: (explain.router, lesson.router)
    )
    owner = {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}

    async def served(scope: Any, receive: Any, send: Any) -> None:
        # the state is what a server gives to each request
        await app({"state": {}, **scope}, receive, send)

    async def ask(path: str, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path, headers=headers)

    def get(path: str, *, signed_in: bool = True) -> httpx.Response:
        return asyncio.run(ask(path, owner if signed_in else {}))

    try:
        yield get
    finally:
        database.close()
