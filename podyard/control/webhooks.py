"""What budgets tell their owners: requests that wait to be sent, each try under a fence of its own.

A worker claims a request in one unit, sends it, and writes how that went in another, unless somebody else has claimed
it since (`db/claims.py`). Nothing is sent inside a unit. One that never gets through is given up, which the budget's
log shows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, select

from podyard.base.ids import row_id
from podyard.db.claims import Claims
from podyard.db.tables_billing import webhooks
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.budget import Budget

TASK = "podyard.deliver_webhook"
SIGNATURE_HEADER = "Podyard-Signature"
CLAIM_SECONDS = 30.0  # longer than a try may take: a worker that died meanwhile is followed by another
WAITS_SECONDS = (10.0, 60.0, 600.0, 3600.0)  # before the 2nd, 3rd, ... try; then it is given up
TRIES_MAX = len(WAITS_SECONDS) + 1
OUTCOME_LENGTH_MAX = 500
_CLAIMS = Claims(webhooks, TASK, CLAIM_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """One try: what to send, and the fence under which to say how it went."""

    webhook_id: str
    url: str
    body: bytes
    signature: str
    fence: int


def put(uow: UnitOfWork, budget: Budget, event_id: str, url: str, message: Mapping[str, Any]) -> None:
    row = {
        "webhook_id": row_id(uow.streams.stream("webhooks"), "webhook"),
        "event_id": event_id,
        "project": budget.project,
        "url": url,
        "body": json.dumps(message, sort_keys=True, separators=(",", ":")),
        "secret": budget.secret,
        "outcome": "",
    }
    _CLAIMS.ask(uow, row)


def signature_of(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of the body, as the header has it."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def claim(uow: UnitOfWork, webhook_id: str) -> Delivery | None:
    """Takes the next try; None when there is none, or it is not due, or somebody else is at it. A request that so many
    workers have died of is given up."""
    row = _CLAIMS.due(uow, webhook_id)
    if row is None:
        return None
    if row["tries"] >= TRIES_MAX:
        _give_up(uow, row, "the worker did not come to its end")
        return None
    body = row["body"].encode()
    return Delivery(webhook_id, row["url"], body, signature_of(row["secret"], body), _CLAIMS.take(uow, row))


def finish(uow: UnitOfWork, delivery: Delivery, delivered: bool, outcome: str) -> bool:
    """Writes how a try went; False, and nothing is written, when another try has been claimed since."""
    row = _CLAIMS.held(uow, delivery.webhook_id, delivery.fence)
    if row is None:
        return False
    if delivered:
        _CLAIMS.end(uow, row, outcome=outcome[:OUTCOME_LENGTH_MAX])
    elif row["tries"] >= TRIES_MAX:
        _give_up(uow, row, outcome)
    else:
        _CLAIMS.again(uow, row, WAITS_SECONDS[row["tries"] - 1], outcome=outcome[:OUTCOME_LENGTH_MAX])
    return True


def _give_up(uow: UnitOfWork, row: Mapping[str, Any], why: str) -> None:
    """The budget's log shows it with its outcome."""
    _CLAIMS.end(uow, row, outcome=f"given up after {row['tries']} tries: {why}"[:OUTCOME_LENGTH_MAX])


def hint_again(uow: UnitOfWork) -> None:
    _CLAIMS.hint_again(uow)


def of_event(uow: UnitOfWork, event_id: str) -> list[Mapping[str, Any]]:
    return uow.all(_OF_EVENT, {"event_id": event_id})


_OF_EVENT = select(webhooks).where(webhooks.c.event_id == bindparam("event_id")).order_by(webhooks.c.webhook_id)
