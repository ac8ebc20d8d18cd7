"""Messages to send after the commit. A message carries ids only: losing, doubling or delaying it
does no harm."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select, update

from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import outbox

OUTBOX_BATCH_MAX = 200  # marked as sent by one unit
BACKGROUND = "background"  # the queue of work that is nobody's in particular: any worker takes it
OUTBOX_KEEP_SECONDS = 3600.0  # sent rows are kept this long for people who look for one


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    message_id: int
    queue: str
    task: str
    args: Sequence[str]


def put(uow: UnitOfWork, queue: str, task: str, args: Sequence[str]) -> None:
    row = {"queue": queue, "task": task, "args": list(args), "created": uow.real_now, "sent": None}
    uow.insert(outbox, row)


def list_unsent(uow: UnitOfWork) -> list[Message]:
    return [Message(**row) for row in uow.all(_UNSENT)]


_UNSENT = (
    select(outbox.c.message_id, outbox.c.queue, outbox.c.task, outbox.c.args)
    .where(outbox.c.sent.is_(None))
    .order_by(outbox.c.message_id)
    .limit(OUTBOX_BATCH_MAX)
)


def mark_sent(uow: UnitOfWork, message_ids: Sequence[int]) -> None:
    uow.execute(_MARK_SENT, {"ids": list(message_ids), "now": uow.real_now})
    uow.execute(_DROP_OLD, {"old": uow.real_now.plus_seconds(-OUTBOX_KEEP_SECONDS)})


_MARK_SENT = (
    update(outbox)
    .where(outbox.c.message_id.in_(bindparam("ids", expanding=True)))
    .values(sent=bindparam("now"))
)
_DROP_OLD = delete(outbox).where(outbox.c.sent < bindparam("old", type_=outbox.c.sent.type))
