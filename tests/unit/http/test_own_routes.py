"""Google's wire answers first; our own routes are loaded meanwhile, and early requests wait for
them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from fastapi import APIRouter
from starlette.applications import Starlette

from podyard import migrations
from podyard.api.app import create_app, prepare
from podyard.base.clock import ManualClock, RealTime
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.settings import Settings, from_environment

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return from_environment({"PODYARD_DATA": str(tmp_path)})


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    database = Database(settings.database_url, ManualClock(START))
    migrations.upgrade(database)
    prepare(settings, database)
    yield database
    database.close()


def ask(app: Starlette, settings: Settings, method: str, *paths: str) -> list[httpx.Response]:
    """The answers to requests that are sent at once."""
    token = settings.token_path.read_text().strip()
    answers: dict[str, httpx.Response] = {}

    async def send_all() -> None:
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as client:

            async def send(path: str) -> None:
                answers[path] = await client.request(method, path)

            async with anyio.create_task_group() as group:
                for path in paths:
                    group.start_soon(send, path)

    anyio.run(send_all)
    return [answers[path] for path in paths]


@pytest.mark.slow
def test_the_wire_needs_neither_fastapi_nor_another_database() -> None:
    heavy = {"fastapi", "pydantic", "sqlalchemy.dialects.postgresql"}
    code = f"import sys, podyard.api.app; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nodes_are_listed_while_the_rest_is_not_loaded(
    settings: Settings, database: Database
) -> None:
    def fail() -> list[APIRouter]:
        raise AssertionError("a list of nodes needs nothing of the rest")

    app = create_app(settings, database, instant_fleet(), ManualClock(START), fail)
    [answer] = ask(app, settings, "GET", "/v2/projects/demo/locations/us-central1-f/nodes")
    assert (answer.status_code, answer.json()) == (200, {"nodes": []})


def test_early_requests_wait_and_pages_are_loaded_once_when_they_are_used(
    settings: Settings, database: Database
) -> None:
    loads: list[str] = []

    def pages() -> list[APIRouter]:
        loads.append("pages")
        router = APIRouter()
        router.add_api_route("/console", lambda: "a page")
        router.add_api_route("/console/other", lambda: "another")
        return [router]

    app = create_app(settings, database, instant_fleet(), ManualClock(START), pages)
    paths = ["/podyard/v1/whoami", "/v1/services", "/healthz", "/podyard/v1/clock"]
    assert [answer.status_code for answer in ask(app, settings, "GET", *paths)] == [200] * 4
    assert loads == []
    assert [answer.text for answer in ask(app, settings, "GET", "/console", "/console/other")] == [
        '"a page"',
        '"another"',
    ]
    assert loads == ["pages"]


def test_errors_of_both_halves_have_one_envelope(settings: Settings, database: Database) -> None:
    app = create_app(settings, database, instant_fleet(), ManualClock(START))
    paths = ["/v2/nothing", "/v1/nothing", "/podyard/v1/nothing", "/nothing"]
    for answer, path in zip(ask(app, settings, "GET", *paths), paths, strict=True):
        text = f"The requested URL {path} was not found on this server"
        assert answer.json()["error"] == {"code": 404, "message": text, "status": "NOT_FOUND"}
    paths = ["/podyard/v1/whoami", "/v2/projects/demo/locations/us-central1-f/nodes/a"]
    allowed = [
        (answer.status_code, answer.headers["allow"])
        for answer in ask(app, settings, "PUT", *paths)
    ]
    assert allowed == [(405, "GET"), (405, "DELETE, GET, PATCH")]
