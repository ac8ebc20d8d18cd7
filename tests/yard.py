"""A Podyard in one process for tests: the real app behind a real server, a loop that turns when it
is told to, and a machine clock that stands still until it is moved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from fastapi import APIRouter

from podyard.api.app import create_app, prepare
from podyard.base.clock import ManualClock, RealTime
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import instant_fleet
from podyard.loop.steps import Loop
from podyard.settings import from_environment
from podyard.testing.server import serving, write_empty_database
from tests.waiting import patient

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
ZONE = "us-central1-f"
ANSWER_SECONDS_MAX = 30.0  # to one request; the server itself says after as long that it is busy


class Yard:
    def __init__(
        self, url: str, database: Database, loop: Loop, clock: ManualClock, data: Path
    ) -> None:
        self.url = url
        self.database = database
        self.loop = loop
        self.clock = clock
        self.data = data
        self.token = (data / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {self.token}"}
        self.http = httpx.Client(
            base_url=url, headers=headers, verify=False, timeout=patient(ANSWER_SECONDS_MAX)
        )
        self.sent: list[tuple[str, str, list[str]]] = []
        # without a token
        self.bare = httpx.Client(base_url=url, verify=False, timeout=patient(ANSWER_SECONDS_MAX))
        self.others: list[httpx.Client] = []

    def close(self) -> None:
        for client in (self.http, self.bare, *self.others):
            client.close()

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.request(method, path, json=body, **options)

    def ok(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        response = self.call(method, path, body, **options)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def refused(
        self, status: int, name: str, method: str, path: str, body: Any = None, **options: Any
    ) -> str:
        """The message of an error that has exactly this HTTP status and google.rpc name, in the one
        envelope."""
        response = self.call(method, path, body, **options)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["status"]) == (status, status, name), (
            response.text
        )
        assert error["message"]
        return str(error["message"])

    def step(self, seconds: float = 0.0) -> None:
        """Lets the machine's time pass in steps that a living loop would take, then turns the loop
        once."""
        while seconds > 0:
            part = min(seconds, 0.5)
            self.clock.advance(part)
            seconds -= part
            self.loop.round()
        self.loop.round()

    def nodes(self, zone: str = ZONE) -> str:
        return f"/v2/projects/demo/locations/{zone}/nodes"

    def jobs(self, zone: str = ZONE) -> str:
        return f"/podyard/v1/projects/demo/locations/{zone}/jobs"

    def create(
        self, node: str, kind: str = "v2-8", zone: str = ZONE, **fields: Any
    ) -> dict[str, Any]:
        """Creates a node, turns the loop, and returns the finished operation."""
        body = {"acceleratorType": kind, "runtimeVersion": "tpu-vm-base", **fields}
        operation = self.ok("POST", f"{self.nodes(zone)}?nodeId={node}", body)
        self.step()
        return self.ok("GET", f"/v2/{operation['name']}")

    def usage(self) -> dict[str, Any]:
        return self.ok("GET", "/podyard/v1/projects/demo/usage")


@contextlib.contextmanager
def open_yard(
    data: Path,
    fleet: Fleet | None = None,
    clock_mode: str = "local",
    routers: tuple[APIRouter, ...] = (),
) -> Iterator[Yard]:
    """`routers`: those of the siblings of the API, such as the console's."""
    settings = from_environment({"PODYARD_DATA": str(data), "PODYARD_CLOCK": clock_mode})
    clock = ManualClock(START)
    if not (data / "podyard.db").exists():  # else it is a copy of the folder of another yard
        write_empty_database(data / "podyard.db")
    database = Database(settings.database_url, clock)
    prepare(settings, database)
    emulated = fleet or instant_fleet()
    sent: list[tuple[str, str, list[str]]] = []
    loop = Loop(database, emulated, lambda q, t, a: sent.append((q, t, list(a))), clock, "test")
    with (
        contextlib.closing(database),
        serving(create_app(settings, database, emulated, clock, lambda: routers)) as url,
    ):
        yard = Yard(url, database, loop, clock, data)
        yard.sent = sent
        loop.round()
        try:
            yield yard
        finally:
            yard.close()
