"""Podyard's own REST for webhooks of projects."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.sealing import unseal
from podyard.control.platform import webhook_endpoints
from podyard.control.platform.webhook_endpoints import EndpointState
from podyard.domain.webhook import WebhookEndpoint, WebhookRequest

router = APIRouter(prefix="/podyard/v1/projects/{project}/webhooks", route_class=deps.Route)


class EndpointMessage(deps.Asked):
    """`events`: such as `job.failed`, or `*` for all."""

    url: StrictStr
    events: list[StrictStr]


class DeliveryAnswer(TypedDict):
    """One request. `outcome`: what was answered last, or what went wrong; `nextTry`: it is sent
    again then."""

    delivery: str
    event: str
    createTime: Timestamp
    tries: int
    delivered: bool
    outcome: str
    nextTry: NotRequired[Timestamp]
    body: str


class EndpointAnswer(TypedDict):
    """`secret` signs what is sent; only who creates the webhook sees it. `waiting`: requests that
    are sent again."""

    name: str
    url: str
    events: list[str]
    createTime: Timestamp
    createdBy: str
    secret: NotRequired[str]
    waiting: NotRequired[int]
    last: NotRequired[DeliveryAnswer]


class EndpointList(TypedDict):
    webhooks: list[EndpointAnswer]


class DeliveryList(TypedDict):
    deliveries: list[DeliveryAnswer]


class TestAnswer(TypedDict):
    delivery: str


@router.put("/{webhook}")
def set_webhook(
    request: Request, project: str, webhook: str, body: Annotated[deps.Body, EndpointMessage]
) -> EndpointAnswer:
    """Creates a webhook, or changes its address and events. Its secret stays."""
    caller = deps.principal(request)
    caller.require("podyard.webhooks.edit", project, f"projects/{project}/webhooks/{webhook}")
    wanted = deps.parse(EndpointMessage, body)
    found, new = deps.write(
        request,
        lambda uow: webhook_endpoints.set_endpoint(
            uow, caller, project, webhook, wanted.url, wanted.events
        ),
    )
    answer = _endpoint(found)
    if new:
        answer["secret"] = unseal(found.secret)
    return answer


@router.get("")
def list_webhooks(request: Request, project: str) -> EndpointList:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: webhook_endpoints.list_endpoints(uow, caller, project))
    return {"webhooks": [_state(one) for one in found]}


@router.get("/{webhook}")
def get_webhook(request: Request, project: str, webhook: str) -> EndpointAnswer:
    caller = deps.principal(request)
    return _state(
        deps.read(request, lambda uow: webhook_endpoints.get(uow, caller, project, webhook))
    )


@router.delete("/{webhook}")
def delete_webhook(request: Request, project: str, webhook: str) -> deps.Empty:
    """With its deliveries; those that wait are not sent."""
    caller = deps.principal(request)
    deps.write(request, lambda uow: webhook_endpoints.remove(uow, caller, project, webhook))
    return {}


@router.post("/{webhook}:test")
def test_webhook(request: Request, project: str, webhook: str) -> TestAnswer:
    """Sends an event `test`; the deliveries say how it went."""
    caller = deps.principal(request)
    return {
        "delivery": deps.write(
            request, lambda uow: webhook_endpoints.send_test(uow, caller, project, webhook)
        )
    }


@router.get("/{webhook}/deliveries")
def list_deliveries(request: Request, project: str, webhook: str) -> DeliveryList:
    """The newest 100 of the past seven days, the newest first."""
    caller = deps.principal(request)
    found = deps.read(
        request, lambda uow: webhook_endpoints.deliveries(uow, caller, project, webhook)
    )
    return {"deliveries": [_delivery(one) for one in found]}


def _state(found: EndpointState) -> EndpointAnswer:
    answer = _endpoint(found.endpoint)
    answer["waiting"] = found.waiting
    if found.last is not None:
        answer["last"] = _delivery(found.last)
    return answer


def _endpoint(found: WebhookEndpoint) -> EndpointAnswer:
    return {
        "name": found.name,
        "url": found.url,
        "events": list(found.events),
        "createTime": found.created.rfc3339(),
        "createdBy": found.created_by,
    }


def _delivery(found: WebhookRequest) -> DeliveryAnswer:
    assert found.event is not None and found.created is not None, found.webhook_id
    answer: DeliveryAnswer = {
        "delivery": found.webhook_id,
        "event": found.event,
        "createTime": found.created.rfc3339(),
        "tries": found.tries,
        "delivered": found.delivered,
        "outcome": found.outcome,
        "body": found.body,
    }
    if found.next_try is not None:
        answer["nextTry"] = found.next_try.rfc3339()
    return answer
