"""A storage server in one process for tests: the real application behind a real server, on an empty
data folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx

from podyard.api.app import prepare
from podyard.api.storage.app import create_storage_app
from podyard.base.clock import OsClock
from podyard.control.access import identity
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.principal import PLATFORM
from podyard.settings import from_environment
from podyard.testing.server import serving, write_empty_database
from tests.waiting import patient

PROJECT = "demo"


class StorageYard:
    def __init__(self, url: str, database: Database, data: Path) -> None:
        self.url = url
        self.database = database
        self.data = data
        self.token = (data / "token").read_text().strip()
        self.http = self.client(self.token)

    @property
    def emulator_host(self) -> str:
        """Return what clients without credentials are given."""
        return f"{self.url}/_t/{self.token}"

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=patient(30))

    def token_of(self, email: str, project: str, role: str) -> str:
        """A token of someone with one role."""

        def unit(uow: object) -> str:
            identity.bind(uow, email, project, role)  # type: ignore[arg-type]
            return identity.lend(uow, email, 3600.0)  # type: ignore[arg-type]

        return self.database.run(unit)

    def add_project(self, project: str) -> None:
        self.database.run(lambda uow: identity.create_project(uow, PLATFORM, project, {}))

    def bucket(self, name: str = "b-1", project: str = PROJECT) -> str:
        response = self.http.post(f"/storage/v1/b?project={project}", json={"name": name})
        assert response.status_code == 200, response.text
        return name

    def put(self, bucket: str, name: str, data: bytes, **headers: str) -> httpx.Response:
        return self.http.post(
            f"/upload/storage/v1/b/{bucket}/o",
            params={"uploadType": "media", "name": name},
            content=data,
            headers={"Content-Type": "text/plain", **headers},
        )

    def files(self) -> set[str]:
        """Names of all files below the contents folder."""
        return {path.name for path in (self.data / "contents").rglob("*") if path.is_file()}


@contextlib.contextmanager
def open_storage(data: Path) -> Iterator[StorageYard]:
    data.mkdir(parents=True, exist_ok=True)
    settings = from_environment({"PODYARD_DATA": str(data)})
    if not (data / "podyard.db").exists():
        write_empty_database(data / "podyard.db")
    clock = OsClock()
    with contextlib.closing(Database(settings.database_url, clock)) as database:
        prepare(settings, database)
        with serving(create_storage_app(settings, database, instant_fleet(), clock)) as url:
            yard = StorageYard(url, database, data)
            try:
                yield yard
            finally:
                yard.http.close()
