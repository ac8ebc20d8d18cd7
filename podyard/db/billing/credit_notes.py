"""Credit notes, as records. They are only ever added."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import credit_notes
from podyard.domain.credit_note import CreditNote, NoteSubject

_OF_PROJECT = (
    select(credit_notes)
    .where(credit_notes.c.project == bindparam("project"))
    .order_by(credit_notes.c.created, credit_notes.c.number)
)
_ENDING = _OF_PROJECT.where(credit_notes.c.subject == bindparam("subject"))


def add(uow: UnitOfWork, note: CreditNote) -> None:
    uow.insert(credit_notes, columns(note))


def of_project(uow: UnitOfWork, project: str) -> list[CreditNote]:
    """The oldest first."""
    rows = uow.all(_OF_PROJECT, {"project": project})
    return [CreditNote(**{**row, "subject": NoteSubject(row["subject"])}) for row in rows]


def ends_of_commitments(uow: UnitOfWork, project: str) -> dict[str, int]:
    """The second at which notes have ended commitments, by id."""
    rows = uow.execute(_ENDING, {"project": project, "subject": NoteSubject.COMMITMENT.value})
    return {row.subject_id: row.ends_second for row in rows}


def ends_of_credits(uow: UnitOfWork, project: str) -> dict[str, str]:
    """The month from which on notes have ended credits, by id."""
    rows = uow.execute(_ENDING, {"project": project, "subject": NoteSubject.CREDIT.value})
    return {row.subject_id: row.ends_month for row in rows}
