"""Credit notes: separate entries that take something back, and change nothing that was issued."""

from __future__ import annotations

import dataclasses
from enum import StrEnum

from podyard.base.clock import PlatformTime


class NoteSubject(StrEnum):
    INVOICE = "invoice"
    COMMITMENT = "commitment"
    CREDIT = "credit"


@dataclasses.dataclass(frozen=True, slots=True)
class CreditNote:
    """`subject_id` is the month of an issued invoice (and `line` one of its lines, or empty), or
    the id of a commitment or a credit that the note ends.

    `minor` of the currency is taken off what the account owes, with tax; 0 where a note only ends
    something. A commitment ends at `ends_second` (POSIX); a credit is not used from `ends_month`
    on.
    """

    number: str
    project: str
    subject: NoteSubject
    subject_id: str
    line: str
    currency: str
    decimals: int
    minor: int
    reason: str
    created_by: str
    created: PlatformTime
    ends_second: int | None = None
    ends_month: str | None = None
