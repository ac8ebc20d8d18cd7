"""Requests to webhooks, and the endpoints of projects that they go to, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, func, select

from podyard.base.clock import RealTime
from podyard.db.store.claims import Claims
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.db.tables.billing import webhook_endpoints, webhooks
from podyard.domain.webhook import WebhookEndpoint, WebhookRequest

_E, _W = webhook_endpoints.c, webhooks.c
_OF_EVENT = select(webhooks).where(_W.event_id == bindparam("event_id")).order_by(_W.webhook_id)
_LEFT = select(_W.webhook_id).where(_W.next_try.is_not(None)).limit(1)
_OF_PROJECT = select(webhook_endpoints).where(_E.project == bindparam("project")).order_by(_E.name)
_ONE = _OF_PROJECT.where(_E.name == bindparam("name"))
_CHANGED = (
    select(webhook_endpoints)
    .where(
        select(state_changes.c.seq)
        .where(state_changes.c.project == _E.project, state_changes.c.seq > _E.looked_seq)
        .exists()
    )
    .order_by(_E.endpoint_key)
)
_ANY_CHANGED = _CHANGED.limit(1)
_TOLD = select(_W.event_id).where(
    _W.endpoint_key == bindparam("endpoint"), _W.event_id.in_(bindparam("events", expanding=True))
)
_WAITING = select(func.count()).where(
    _W.endpoint_key == bindparam("endpoint"), _W.next_try.is_not(None)
)
_NEWEST = (
    select(webhooks)
    .where(_W.endpoint_key == bindparam("endpoint"))
    .order_by(_W.created.desc(), _W.webhook_id)
    .limit(bindparam("most"))
)


def claims(task: str, seconds: float) -> Claims[WebhookRequest]:
    return Claims(webhooks, WebhookRequest, task, seconds)


def is_any_left(uow: UnitOfWork) -> bool:
    """Return whether one has not got through yet."""
    return uow.first(_LEFT) is not None


def of_event(uow: UnitOfWork, event_id: str) -> list[WebhookRequest]:
    return [WebhookRequest(**row) for row in uow.all(_OF_EVENT, {"event_id": event_id})]


def newest(uow: UnitOfWork, endpoint_key: str, most: int) -> list[WebhookRequest]:
    """Those to an endpoint, the newest first."""
    return [
        WebhookRequest(**row) for row in uow.all(_NEWEST, {"endpoint": endpoint_key, "most": most})
    ]


def waiting_count(uow: UnitOfWork, endpoint_key: str) -> int:
    """Return how many requests to an endpoint have not got through yet."""
    return int(uow.execute(_WAITING, {"endpoint": endpoint_key}).scalar() or 0)


def events_told(uow: UnitOfWork, endpoint_key: str, event_ids: Sequence[str]) -> set[str]:
    """Those of these events for which there is a request to the endpoint."""
    rows = uow.execute(_TOLD, {"endpoint": endpoint_key, "events": list(event_ids)})
    return set(rows.scalars())


def keep_unsent(uow: UnitOfWork, request: WebhookRequest) -> None:
    """One that is shown, and never sent."""
    uow.insert(webhooks, columns(request))


def find_endpoint(uow: UnitOfWork, project: str, name: str) -> WebhookEndpoint | None:
    row = uow.first(_ONE, {"project": project, "name": name})
    return None if row is None else _endpoint(row)


def endpoints_of(uow: UnitOfWork, project: str) -> list[WebhookEndpoint]:
    """By name."""
    return [_endpoint(row) for row in uow.all(_OF_PROJECT, {"project": project})]


def to_look_at(uow: UnitOfWork) -> list[WebhookEndpoint]:
    """Those of projects in which something has changed since they have looked."""
    return [_endpoint(row) for row in uow.all(_CHANGED)]


def any_to_look_at(uow: UnitOfWork) -> bool:
    return uow.first(_ANY_CHANGED) is not None


def add_endpoint(uow: UnitOfWork, endpoint: WebhookEndpoint) -> None:
    uow.insert(webhook_endpoints, columns(endpoint))


def set_endpoint(
    uow: UnitOfWork, endpoint: WebhookEndpoint, url: str, events: Sequence[str]
) -> None:
    values = {"url": url, "events": list(events)}
    uow.update(webhook_endpoints, {"endpoint_key": endpoint.endpoint_key}, values)


def keep_look(uow: UnitOfWork, endpoint: WebhookEndpoint, seq: int) -> None:
    """It has looked at the changes up to this number."""
    uow.update(webhook_endpoints, {"endpoint_key": endpoint.endpoint_key}, {"looked_seq": seq})


def remove_endpoint(uow: UnitOfWork, endpoint: WebhookEndpoint) -> None:
    """With its requests, also those that have not got through."""
    uow.execute(delete(webhooks).where(_W.endpoint_key == endpoint.endpoint_key))
    uow.execute(delete(webhook_endpoints).where(_E.endpoint_key == endpoint.endpoint_key))


def remove_old(uow: UnitOfWork, before: RealTime, most: int) -> int:
    """Removes requests to endpoints that were made before a moment and wait for no try; returns how
    many."""
    old = select(_W.webhook_id).where(
        _W.endpoint_key.is_not(None), _W.created < before, _W.next_try.is_(None)
    )
    keys = list(uow.execute(old.order_by(_W.created).limit(most)).scalars())
    if keys:
        uow.execute(delete(webhooks).where(_W.webhook_id.in_(keys)))
    return len(keys)


def _endpoint(row: Mapping[str, Any]) -> WebhookEndpoint:
    return WebhookEndpoint(**{**row, "events": tuple(row["events"])})
