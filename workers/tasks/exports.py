"""Makes an export's file. Called by a task; the fence is kept in control/billing/exports.py."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from podyard.base.errors import PodyardError
from podyard.control.billing import exports
from podyard.db.store.unit_of_work import Database
from podyard.domain import months
from podyard.domain.export import Export
from podyard.pricing.export import ExportRow, ExportSource, rows
from podyard.pricing.export_table import Exported
from podyard.pricing.sku import RateCard

# after so many rows it says how far it is: a tenth of a second to a second of work
ROWS_TOLD = 5_000
_ACTOR = "export"


class _Lost(Exception):
    """Another worker has the export now."""


def make(database: Database, objects: Path, card: RateCard, export_id: str) -> bool:
    """One try at an export; True when its file is there. Called twice, it makes one file."""
    claimed = database.run(lambda uow: exports.claim(uow, export_id), actor=_ACTOR)
    if claimed is None:
        return False
    try:
        return _Maker(database, objects, card, claimed).run()
    except _Lost:
        return False
    except PodyardError as error:
        failure = error
        database.run(lambda uow: exports.fail(uow, claimed, failure), actor=_ACTOR)
        return False


class _Maker:
    def __init__(self, database: Database, objects: Path, card: RateCard, claimed: Export) -> None:
        self._database = database
        self._objects = objects
        self._card = card
        self._claimed = claimed
        self._granularity = claimed.granularity
        self._done = 0
        self._all = claimed.rows_all  # None: not counted yet

    def run(self) -> bool:
        if self._all is None:
            counted = sum(1 for found in self._sources() for _ in self._report(found))
            self._done, self._all = 0, counted
        self._tell()
        target = self._objects / exports.object_name_of(self._claimed)
        target.parent.mkdir(parents=True, exist_ok=True)
        being_written = target.with_name(f".{target.name}")  # readers leave names with a dot aside
        digest, size = hashlib.sha256(), 0
        try:
            with being_written.open("wb") as file:
                for chunk in exports.format_of(self._claimed.format).encode(self._months()):
                    file.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                # What the last unit names must be there after a power cut as well.
                file.flush()
                os.fsync(file.fileno())
            being_written.replace(target)
        finally:
            being_written.unlink(missing_ok=True)
        finished = self._database.run(
            lambda uow: exports.finish(uow, self._claimed, self._done, size, digest.hexdigest()),
            actor=_ACTOR,
        )
        self._sweep(target.parent)
        return finished

    def _sources(self) -> Iterator[ExportSource]:
        """One month after the other: no more than one is in memory."""
        for month in months.between(self._claimed.from_month, self._claimed.until_month):
            found = self._database.read(
                partial(exports.month_of, card=self._card, claimed=self._claimed, month=month)
            )
            if found is not None:
                yield found

    def _months(self) -> Iterator[Exported]:
        for found in self._sources():
            yield found, self._report(found)

    def _report(self, found: ExportSource) -> Iterator[ExportRow]:
        for row in rows(found, self._granularity):
            yield row
            self._done += 1
            if self._done % ROWS_TOLD == 0:
                self._tell()

    def _tell(self) -> None:
        done = 0 if self._all is None else self._done
        if not self._database.run(
            lambda uow: exports.progress(uow, self._claimed, done, self._all), actor=_ACTOR
        ):
            raise _Lost

    def _sweep(self, folder: Path) -> None:
        project = self._claimed.project
        there = sorted(path.relative_to(self._objects).as_posix() for path in folder.iterdir())
        for name in self._database.read(lambda uow: exports.stale_files(uow, project, there)):
            (self._objects / name).unlink(missing_ok=True)
