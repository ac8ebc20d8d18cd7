"""Work in rows that workers take on: each try under a claim that lapses, and a new fence.

A unit writes the work and a message for a worker (`ask`). The worker claims it (`due`, then
`take`), does the work outside of any unit, and writes how it went only while the row still has its
fence (`find_held`, `renew`): a worker that was thought dead changes nothing. The loop sends the
message again when it was lost or when the claim has lapsed (`send_again`). Times are real: a claim
is a promise of a process.

The table has `tries`, `fence` and `next_try` (null: nothing more is to be done).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, Protocol, TypeVar, cast

from sqlalchemy import Table, bindparam, select

from podyard.base.clock import RealTime
from podyard.db.store import outbox
from podyard.db.store.records import changed_columns, columns
from podyard.db.store.unit_of_work import UnitOfWork

# sent again by one look of the loop: the other rows have their turn at the next ones
MESSAGES_MAX = 50


class Claimable(Protocol):
    """A record of such a table."""

    @property
    def tries(self) -> int: ...
    @property
    def fence(self) -> int: ...
    @property
    def next_try(self) -> RealTime | None: ...


Work = TypeVar("Work", bound=Claimable)


class Claims(Generic[Work]):
    """The work in the rows of one table, whose key is one column. `seconds`: what a claim lasts.
    How many tries a row has before it is given up is for the caller to say: a worker may die of
    each. `changed` is the record with its other changes, as of `transition.move`."""

    def __init__(self, table: Table, record: type[Work], task: str, seconds: float) -> None:
        (key,) = table.primary_key
        next_try = table.c.next_try
        self._table = table
        self._record = record
        self._key = key.name
        self._task = task
        self._seconds = seconds
        self._locked = select(table).where(key == bindparam("id")).with_for_update()
        self._due = (
            select(key.label("id"))
            .where(next_try <= bindparam("now", type_=next_try.type))
            .order_by(next_try, key)
            .limit(MESSAGES_MAX)
        )

    def ask(self, uow: UnitOfWork, work: Work) -> None:
        """Writes work of which nothing has been tried yet, and its message."""
        assert (work.tries, work.fence) == (0, 0), work
        uow.insert(self._table, columns(work) | {"next_try": uow.real_now})
        self._send(uow, getattr(work, self._key))

    def due(self, uow: UnitOfWork, key: str) -> Work | None:
        """The work, locked; None when nothing is to be done, or not yet, or another worker is at
        it."""
        work = self._find(uow, key)
        return (
            None if work is None or work.next_try is None or work.next_try > uow.real_now else work
        )

    def take(self, uow: UnitOfWork, work: Work) -> Work:
        """Begins the next try at work that is due."""
        return self.renew(uow, work, _replace(work, fence=work.fence + 1, tries=work.tries + 1))

    def find_held(self, uow: UnitOfWork, key: str, fence: int) -> Work | None:
        """The work, locked, while the try with this fence may write what came of it."""
        work = self._find(uow, key)
        return None if work is None or work.fence != fence or work.next_try is None else work

    def renew(self, uow: UnitOfWork, work: Work, changed: Work) -> Work:
        """Makes a claim that is held last from now on."""
        return self.again(uow, work, changed, self._seconds)

    def again(self, uow: UnitOfWork, work: Work, changed: Work, wait_seconds: float) -> Work:
        """The next try may begin after a wait: of a claim, or before work that has failed is tried
        again."""
        return self._store(
            uow, work, _replace(changed, next_try=uow.real_now.plus_seconds(wait_seconds))
        )

    def end(self, uow: UnitOfWork, work: Work, changed: Work) -> None:
        """Nothing more is to be done."""
        self._store(uow, work, _replace(changed, next_try=None))

    def send_again(self, uow: UnitOfWork) -> None:
        """Sends a message for what is due: the first was lost, or its worker died. Claiming keeps
        two workers apart."""
        for row in uow.all(self._due, {"now": uow.real_now}):
            self._send(uow, row["id"])

    def _find(self, uow: UnitOfWork, key: str) -> Work | None:
        row = uow.first(self._locked, {"id": key})
        return None if row is None else self._record(**row)

    def _send(self, uow: UnitOfWork, key: str) -> None:
        outbox.put(uow, outbox.BACKGROUND, self._task, [key])

    def _store(self, uow: UnitOfWork, work: Work, changed: Work) -> Work:
        uow.update(
            self._table, {self._key: getattr(work, self._key)}, changed_columns(work, changed)
        )
        return changed


def _replace(work: Work, **changes: Any) -> Work:
    return cast(Work, dataclasses.replace(cast(Any, work), **changes))
