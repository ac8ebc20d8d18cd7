"""What budgets tell their owners: requests that wait to be sent, each try under a fence of its own.

A unit writes the request and a hint for a worker. The worker claims it (one unit), sends it, and writes how that went
(another unit), unless somebody else has claimed it since. Nothing is sent inside a unit. A hint that is lost is given
again by the loop.
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
from podyard.db import outbox
from podyard.db.tables_billing import webhooks
from podyard.db.unit_of_work import UnitOfWork

TASK = "podyard.deliver_webhook"
SIGNATURE_HEADER = "Podyard-Signature"
CLAIM_SECONDS = 30.0  # longer than a try may take: a worker that died meanwhile is followed by another
WAITS_SECONDS = (10.0, 60.0, 600.0, 3600.0)  # before the 2nd, 3rd, ... try; then it is given up
TRIES_MAX = len(WAITS_SECONDS) + 1
HINTS_MAX = 50  # requests that one look of the loop hints at again
OUTCOME_LENGTH_MAX = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """One try: what to send, and the fence under which to say how it went."""

    webhook_id: str
    url: str
    body: bytes
    signature: str
    fence: int


def put(uow: UnitOfWork, budget: Mapping[str, Any], event_id: str, url: str, message: Mapping[str, Any]) -> None:
    webhook_id = row_id(uow.streams.stream("webhooks"), "webhook")
    uow.insert(
        webhooks,
        {
            "webhook_id": webhook_id,
            "event_id": event_id,
            "project": budget["project"],
            "url": url,
            "body": json.dumps(message, sort_keys=True, separators=(",", ":")),
            "secret": budget["secret"],
            "tries": 0,
            "fence": 0,
            "next_try": uow.real_now,
            "outcome": "",
        },
    )
    outbox.put(uow, outbox.BACKGROUND, TASK, [webhook_id])


def signature_of(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of the body, as the header has it."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def claim(uow: UnitOfWork, webhook_id: str) -> Delivery | None:
    """Takes the next try; None when there is none, or it is not due, or somebody else is at it."""
    row = uow.first(_LOCKED, {"id": webhook_id})
    if row is None or row["next_try"] is None or row["next_try"] > uow.real_now:
        return None
    fence = row["fence"] + 1
    values = {"fence": fence, "tries": row["tries"] + 1, "next_try": uow.real_now.plus_seconds(CLAIM_SECONDS)}
    uow.update(webhooks, {"webhook_id": webhook_id}, values)
    body = row["body"].encode()
    return Delivery(webhook_id, row["url"], body, signature_of(row["secret"], body), fence)


def finish(uow: UnitOfWork, delivery: Delivery, delivered: bool, outcome: str) -> bool:
    """Writes how a try went; False, and nothing is written, when another try has been claimed since."""
    row = uow.first(_LOCKED, {"id": delivery.webhook_id})
    if row is None or row["fence"] != delivery.fence:
        return False
    again = None if delivered or row["tries"] >= TRIES_MAX else WAITS_SECONDS[row["tries"] - 1]
    next_try = None if again is None else uow.real_now.plus_seconds(again)
    values = {"next_try": next_try, "outcome": outcome[:OUTCOME_LENGTH_MAX]}
    return uow.update(webhooks, {"webhook_id": delivery.webhook_id, "fence": delivery.fence}, values)


def hint_again(uow: UnitOfWork) -> None:
    """Hints at what is due: its message was lost, or its worker died. Claiming keeps two workers apart."""
    for row in uow.all(_DUE, {"now": uow.real_now, "most": HINTS_MAX}):
        outbox.put(uow, outbox.BACKGROUND, TASK, [row["webhook_id"]])


def of_event(uow: UnitOfWork, event_id: str) -> list[Mapping[str, Any]]:
    return uow.all(_OF_EVENT, {"event_id": event_id})


_LOCKED = select(webhooks).where(webhooks.c.webhook_id == bindparam("id")).with_for_update()
_DUE = (
    select(webhooks.c.webhook_id)
    .where(webhooks.c.next_try <= bindparam("now", type_=webhooks.c.next_try.type))
    .order_by(webhooks.c.next_try, webhooks.c.webhook_id)
    .limit(bindparam("most"))
)
_OF_EVENT = select(webhooks).where(webhooks.c.event_id == bindparam("event_id")).order_by(webhooks.c.webhook_id)
