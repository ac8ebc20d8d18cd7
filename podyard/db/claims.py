"""Work in rows that workers take on: each try under a claim that lapses, and a fence of its own.

A unit writes the row and a hint for a worker (`ask`). The worker claims the row (`due`, then `take`), does the work
outside of any unit, and writes how it went only while the row still has its fence (`held`, `renew`): a worker that
was thought dead changes nothing. A hint that is lost, and a claim that has lapsed, are hinted at again by the loop
(`hint_again`). Times are real: a claim is a promise of a process.

The table has `tries`, `fence` and `next_try` (null: nothing more is to be done).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, bindparam, select

from podyard.db import outbox
from podyard.db.unit_of_work import UnitOfWork

HINTS_MAX = 50  # rows that one look of the loop hints at again: the others have their turn at the next ones

Row = Mapping[str, Any]


class Claims:
    """The work in the rows of one table, whose key is one column. `seconds`: what a claim lasts. How many tries a row
    has before it is given up is for the caller to say: a worker may die of each."""

    def __init__(self, table: Table, task: str, seconds: float) -> None:
        (key,) = table.primary_key
        next_try = table.c.next_try
        self._table = table
        self._key = key.name
        self._task = task
        self._seconds = seconds
        self._locked = select(table).where(key == bindparam("id")).with_for_update()
        self._due = (
            select(key.label("id"))
            .where(next_try <= bindparam("now", type_=next_try.type))
            .order_by(next_try, key)
            .limit(HINTS_MAX)
        )

    def ask(self, uow: UnitOfWork, row: Row) -> None:
        """Writes a row of which nothing has been tried yet, and a hint at it."""
        uow.insert(self._table, {**row, "tries": 0, "fence": 0, "next_try": uow.real_now})
        self._hint(uow, row[self._key])

    def due(self, uow: UnitOfWork, row_id: str) -> Row | None:
        """The row, locked; None when nothing is to be done, or not yet, or somebody else is at it."""
        row = uow.first(self._locked, {"id": row_id})
        return None if row is None or row["next_try"] is None or row["next_try"] > uow.real_now else row

    def take(self, uow: UnitOfWork, row: Row) -> int:
        """Begins the next try at a row that is due; returns its fence."""
        fence: int = row["fence"] + 1
        self.renew(uow, row, fence=fence, tries=row["tries"] + 1)
        return fence

    def held(self, uow: UnitOfWork, row_id: str, fence: int) -> Row | None:
        """The row, locked, while the try with this fence may write what came of it."""
        row = uow.first(self._locked, {"id": row_id})
        return None if row is None or row["fence"] != fence or row["next_try"] is None else row

    def renew(self, uow: UnitOfWork, row: Row, **values: Any) -> None:
        """Makes a claim that is held last from now on, and sets further columns."""
        self.again(uow, row, self._seconds, **values)

    def again(self, uow: UnitOfWork, row: Row, wait_seconds: float, **values: Any) -> None:
        """The next try may begin after a wait: of a claim, or before work that has failed is tried again."""
        self._set(uow, row, values | {"next_try": uow.real_now.plus_seconds(wait_seconds)})

    def end(self, uow: UnitOfWork, row: Row, **values: Any) -> None:
        """Nothing more is to be done."""
        self._set(uow, row, values | {"next_try": None})

    def hint_again(self, uow: UnitOfWork) -> None:
        """Hints at what is due: its hint was lost, or its worker died. Claiming keeps two workers apart."""
        for row in uow.all(self._due, {"now": uow.real_now}):
            self._hint(uow, row["id"])

    def _hint(self, uow: UnitOfWork, row_id: str) -> None:
        outbox.put(uow, outbox.BACKGROUND, self._task, [row_id])

    def _set(self, uow: UnitOfWork, row: Row, values: Row) -> None:
        uow.update(self._table, {self._key: row[self._key]}, values)
