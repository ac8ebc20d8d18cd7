"""The audit log: kept for a number of days, and read by the platform's owner."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.db.platform import audit
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.audit import AuditLine
from podyard.domain.credential import SECONDS_PER_DAY
from podyard.domain.principal import Principal

VIEW = "podyard.audit.list"


def keep(uow: UnitOfWork, lines: Sequence[AuditLine], days: int) -> None:
    """Writes lines, and removes those that are older than `days`."""
    audit.add(uow, lines)
    audit.prune(uow, uow.real_now.plus_seconds(-days * SECONDS_PER_DAY))


def lines(
    uow: UnitOfWork,
    principal: Principal,
    *,
    actor: str | None,
    refused: bool,
    before: int | None,
    most: int,
) -> list[AuditLine]:
    """The newest first. They name projects of everybody, so they are for the platform's owner."""
    principal.require(VIEW, "*", "audit")
    return audit.newest(uow, actor=actor, refused=refused, before=before, most=most)
