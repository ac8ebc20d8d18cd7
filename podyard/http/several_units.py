"""Work that takes more than one unit, or a unit that starts again: closing a month, and reading the
kept bill.

Use cases are bodies of one unit each; who opens the units is an edge. The loop closes months in its
own way (`loop/closings.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from podyard.control.billing import closing
from podyard.control.billing.kept_bills import Behind
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.invoice import IssuedInvoice
from podyard.domain.principal import Principal
from podyard.pricing.sku import RateCard

READS_MAX = 3  # of one page, until it is as late as the bill that is kept

T = TypeVar("T")


def close(
    database: Database,
    card: RateCard,
    principal: Principal,
    project: str,
    month: str,
    *,
    hold_suspense: bool = False,
) -> IssuedInvoice | None:
    """Issues the month's invoice and returns it; None when there was nothing to invoice. One that
    is closed
    already stays as it is.

    `hold_suspense`: leaves out what has no price; it is adjusted when it gets one. Raises
    FAILED_PRECONDITION before the month is over, before the months before it are closed, and for
    usage without a price, which it names; ABORTED when usage or terms change as often as it is
    computed.
    """
    asked: dict[str, Any] = {"principal": principal, "project": project, "month": month}
    for _ in range(closing.CLOSE_TRIES_MAX):
        known = database.run(closing.known_events, actor=principal.email)
        found = database.read(
            partial(closing.prepare, card=card, known_seq=known, **asked), actor=principal.email
        )
        issue = partial(closing.issue_by_hand, found=found, hold_suspense=hold_suspense, **asked)
        with contextlib.suppress(closing.Outdated):
            return database.run(issue, actor=principal.email)
    raise closing.Outdated(project, month)


def read_snapshot(
    database: Database, body: Callable[[UnitOfWork], T], *, actor: str = "podyard"
) -> T:
    """As `database.read`, for what takes a snapshot: a read that is too early for the kept bill
    starts again,
    which costs nothing, since that one is newer."""
    for _ in range(READS_MAX - 1):
        with contextlib.suppress(Behind):
            return database.read(body, actor=actor)
    try:
        return database.read(body, actor=actor)
    except Behind as error:
        error.drop()  # it is the clock that has gone back
    return database.read(body, actor=actor)
