"""Podyard's own REST for credit notes."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import invalid
from podyard.base.money import minor_text
from podyard.control.billing import credit_notes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credit_note import CreditNote

router = APIRouter(prefix="/podyard/v1/projects/{project}/creditNotes", route_class=deps.Route)


class CreditNoteMessage(deps.Asked):
    month: StrictStr | None = None
    amount: StrictStr | None = None
    line: StrictStr = ""
    commitment: StrictStr | None = None
    credit: StrictStr | None = None
    reason: StrictStr


class CreditNoteAnswer(TypedDict):
    """A note on the invoice of `month`, or one that ends a commitment (at `endTime`) or a credit
    (with the month before `endMonth`). `amount` is what it takes off what is owed."""

    creditNote: str
    month: NotRequired[str]
    line: NotRequired[str]
    commitment: NotRequired[str]
    credit: NotRequired[str]
    currency: str
    amount: str
    reason: str
    createdBy: str
    createTime: Timestamp
    endTime: NotRequired[Timestamp]
    endMonth: NotRequired[str]


class CreditNoteList(TypedDict):
    creditNotes: list[CreditNoteAnswer]


@router.get("")
def list_notes(request: Request, project: str) -> CreditNoteList:
    """The oldest first."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: credit_notes.list_notes(uow, caller, project))
    return {"creditNotes": [_answer(note) for note in found]}


@router.post("")
def create_note(
    request: Request, project: str, body: Annotated[deps.Body, CreditNoteMessage]
) -> CreditNoteAnswer:
    """Takes `amount` of the invoice of `month` (or of one of its lines) back, or ends a commitment
    or a credit. No invoice changes."""
    caller = deps.principal(request)
    caller.require("podyard.billing.edit", project, f"projects/{project}/creditNotes")
    message = deps.parse(CreditNoteMessage, body)
    subjects = [
        name for name in ("month", "commitment", "credit") if getattr(message, name) is not None
    ]
    if len(subjects) != 1:
        raise invalid("specify one of month, commitment and credit", "month")
    if (message.amount is None) == (subjects == ["month"]):
        raise invalid(
            "amount is required with month, and not allowed with commitment or credit", "amount"
        )
    if message.line and subjects != ["month"]:
        raise invalid("line is only allowed with month", "line")

    def write(uow: UnitOfWork) -> CreditNote:
        if message.month is not None and message.amount is not None:
            asked = (message.month, message.amount, message.line, message.reason)
            return credit_notes.credit_invoice(uow, caller, project, *asked)
        if message.commitment is not None:
            return credit_notes.end_commitment(
                uow, caller, project, message.commitment, message.reason
            )
        return credit_notes.end_credit(uow, caller, project, str(message.credit), message.reason)

    return _answer(deps.write(request, write))


def _answer(note: CreditNote) -> CreditNoteAnswer:
    answer: CreditNoteAnswer = {
        "creditNote": note.number,
        "currency": note.currency,
        "amount": minor_text(note.minor, note.decimals),
        "reason": note.reason,
        "createdBy": note.created_by,
        "createTime": note.created.rfc3339(),
    }
    match note.subject:
        case "invoice":
            answer["month"] = note.subject_id
        case "commitment":
            answer["commitment"] = note.subject_id
        case "credit":
            answer["credit"] = note.subject_id
    if note.line:
        answer["line"] = note.line
    if note.ends_second is not None:
        answer["endTime"] = PlatformTime(note.ends_second * NANOS_PER_SECOND).rfc3339()
    if note.ends_month is not None:
        answer["endMonth"] = note.ends_month
    return answer
