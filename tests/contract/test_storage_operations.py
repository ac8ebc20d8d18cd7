"""Requests to the storage process become usage events without a write of the database for each."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from podyard.api.storage.app import create_storage_app
from podyard.base.clock import OsClock
from podyard.db.billing import usage_events
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.usage import UsageEvent
from podyard.settings import from_environment
from tests.contract.storage_yard import PROJECT, open_storage


def _operations(data: Path) -> list[tuple[str, int]]:
    settings = from_environment({"PODYARD_DATA": str(data)})
    with contextlib.closing(Database(settings.database_url, OsClock())) as database:

        def read(uow: object) -> list[UsageEvent]:
            return list(usage_events.events(uow, PROJECT))  # type: ignore[arg-type]

        found = database.read(read)
    return [
        (event.resource_id.partition("/")[2], event.operations)
        for event in found
        if event.operations
    ]


async def _live(data: Path) -> None:
    """The storage process starts and ends."""
    settings = from_environment({"PODYARD_DATA": str(data)})
    with contextlib.closing(Database(settings.database_url, OsClock())) as database:
        app = create_storage_app(settings, database, instant_fleet(), OsClock())
        told = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> dict[str, str]:
            return next(told)

        async def send(_message: object) -> None:
            pass

        await app({"type": "lifespan", "state": {}}, receive, send)  # type: ignore[arg-type]


def test_operations_are_written_when_a_process_ends_or_begins_or_their_bucket_changes(
    tmp_path: Path,
) -> None:
    """What is refused, removed or of no bucket is free."""
    with open_storage(tmp_path) as yard:
        bucket = yard.bucket()
        assert yard.put(bucket, "a", b"x").status_code == 200
        for name, status in (("a", 200), ("a", 200), ("none", 404)):
            assert yard.http.get(f"/storage/v1/b/{bucket}/o/{name}").status_code == status
        assert yard.http.get(f"/storage/v1/b/{bucket}/o").status_code == 200
        assert yard.http.delete(f"/storage/v1/b/{bucket}/o/a").status_code == 204
        assert _operations(tmp_path) == []
        changes = {"storageClass": "NEARLINE"}
        assert yard.http.patch(f"/storage/v1/b/{bucket}", json=changes).status_code == 200
        assert _operations(tmp_path) == [("class-a", 2), ("class-b", 2)]
    # the server of the yard has ended without a word, as if it was killed
    asyncio.run(_live(tmp_path))
    assert sorted(_operations(tmp_path)) == [("class-a", 1), ("class-a", 2), ("class-b", 2)]
