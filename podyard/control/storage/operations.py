"""Operations on buckets as usage events, from the counts of the storage process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from podyard.base.operation_counts import Counted, read_counts
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.stored import OperationClass

_BATCH = 100  # counts of one unit: some milliseconds for which nobody else can write


def write_counts(database: Database, files: Iterable[Path]) -> None:
    """Writes what these files count, and removes them. It may be called again for the same files
    after a kill."""
    for path in files:
        # In order, so that no two units wait for each other's buckets.
        counts = sorted(read_counts(path), key=lambda one: one.bucket)
        for start in range(0, len(counts), _BATCH):
            database.run(partial(_write, counts=counts[start : start + _BATCH]))
        path.unlink(missing_ok=True)


def _write(uow: UnitOfWork, counts: Sequence[Counted]) -> None:
    for one in counts:
        event_id = f"event-{one.count_id}"
        storage.count_operations(
            uow, one.bucket, OperationClass(one.of_class), one.number, event_id
        )
