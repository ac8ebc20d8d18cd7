"""What budgets tell their owners, as records."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from podyard.db.claims import Claims
from podyard.db.tables_billing import webhooks
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.budget import WebhookRequest

_OF_EVENT = select(webhooks).where(webhooks.c.event_id == bindparam("event_id")).order_by(webhooks.c.webhook_id)
_LEFT = select(webhooks.c.webhook_id).where(webhooks.c.next_try.is_not(None)).limit(1)


def claims(task: str, seconds: float) -> Claims[WebhookRequest]:
    return Claims(webhooks, WebhookRequest, task, seconds)


def is_any_left(uow: UnitOfWork) -> bool:
    """Whether one has not got through yet."""
    return uow.first(_LEFT) is not None


def of_event(uow: UnitOfWork, event_id: str) -> list[WebhookRequest]:
    return [WebhookRequest(**row) for row in uow.all(_OF_EVENT, {"event_id": event_id})]
