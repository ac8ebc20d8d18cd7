"""Requests to webhooks, of budgets and of projects' endpoints: they wait to be sent, each try under
a new fence.

A worker claims a request in one unit, sends it, and writes how that went in another, unless another
worker has claimed it since (`db/store/claims.py`). Nothing is sent inside a unit. One that never
gets through is given up, which the log of the budget, or the endpoint's list of deliveries, shows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from podyard.base.ids import row_id
from podyard.base.spelling import camel_case
from podyard.db.platform import webhooks
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.budget import Budget
from podyard.domain.webhook import EventMessage, WebhookEndpoint, WebhookRequest

TASK = "podyard.deliver_webhook"
SIGNATURE_HEADER = "Podyard-Signature"
# longer than a try may take: a worker that died meanwhile is followed by another
CLAIM_SECONDS = 30.0
WAITS_SECONDS = (10.0, 60.0, 600.0, 3600.0)  # before the 2nd, 3rd, ... try; then it is given up
TRIES_MAX = len(WAITS_SECONDS) + 1
OUTCOME_LENGTH_MAX = 500
# requests to one endpoint: if it is away for long, a busy project must not fill the database
WAITING_MAX = 1000
_CLAIMS = webhooks.claims(TASK, CLAIM_SECONDS)


def put(
    uow: UnitOfWork, budget: Budget, event_id: str, url: str, message: Mapping[str, Any]
) -> None:
    key = row_id(uow.streams.stream("webhooks"), "webhook")
    body = json.dumps(message, sort_keys=True, separators=(",", ":"))
    _CLAIMS.ask(uow, WebhookRequest(key, event_id, budget.project, url, body, budget.secret))


def put_event(uow: UnitOfWork, endpoint: WebhookEndpoint, message: EventMessage) -> str:
    """A request that tells an endpoint of an event; returns its id. While too many wait, it is kept
    unsent."""
    body = {camel_case(name): value for name, value in dataclasses.asdict(message).items()}
    request = WebhookRequest(
        row_id(uow.streams.stream("webhooks"), "webhook"),
        message.id,
        endpoint.project,
        endpoint.url,
        json.dumps(body, sort_keys=True, separators=(",", ":")),
        endpoint.secret,
        endpoint_key=endpoint.endpoint_key,
        event=message.event,
        created=uow.real_now,
    )
    if webhooks.waiting_count(uow, endpoint.endpoint_key) >= WAITING_MAX:
        text = f"not sent: {WAITING_MAX} requests to this endpoint wait already"
        webhooks.keep_unsent(uow, dataclasses.replace(request, outcome=text))
    else:
        _CLAIMS.ask(uow, request)
    return request.webhook_id


def signature_of(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of the body, as the header has it."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def claim(uow: UnitOfWork, webhook_id: str) -> WebhookRequest | None:
    """Takes the next try; None when there is none, or it is not due, or another worker is at it. A
    request that so many workers have died of is given up."""
    found = _CLAIMS.due(uow, webhook_id)
    if found is None:
        return None
    if found.tries >= TRIES_MAX:
        _give_up(uow, found, "the worker did not come to its end")
        return None
    return _CLAIMS.take(uow, found)


def finish(uow: UnitOfWork, tried: WebhookRequest, delivered: bool, outcome: str) -> bool:
    """Writes how a try went; False, and nothing is written, when another try has been claimed
    since."""
    found = _CLAIMS.find_held(uow, tried.webhook_id, tried.fence)
    if found is None:
        return False
    changed = dataclasses.replace(found, outcome=outcome[:OUTCOME_LENGTH_MAX])
    if delivered:
        _CLAIMS.end(uow, found, dataclasses.replace(changed, delivered=True))
    elif found.tries >= TRIES_MAX:
        _give_up(uow, found, outcome)
    else:
        _CLAIMS.again(uow, found, changed, WAITS_SECONDS[found.tries - 1])
    return True


def _give_up(uow: UnitOfWork, found: WebhookRequest, why: str) -> None:
    """It is shown with its outcome."""
    text = f"given up after {found.tries} tries: {why}"[:OUTCOME_LENGTH_MAX]
    _CLAIMS.end(uow, found, dataclasses.replace(found, outcome=text))


def send_again(uow: UnitOfWork) -> None:
    _CLAIMS.send_again(uow)
