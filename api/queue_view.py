"""Podyard's own REST for the queue: what waits for chips or for a node, where it stands, why, and
when it starts."""

from __future__ import annotations

from typing import NotRequired

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.control.compute import queue_view
from podyard.control.compute.queue_view import Waiting

router = APIRouter(
    prefix="/podyard/v1/projects/{project}/locations/{zone}/queue", route_class=deps.Route
)


class WaitingAnswer(TypedDict):
    """`kind` is node, queuedResource or job. `position` counts from 1 and counts those of other
    projects, too. `predictedStart` is there when it can be told."""

    name: str
    kind: str
    position: int
    acceleratorType: str
    priority: int
    reason: str
    waitingSince: Timestamp
    predictedStart: NotRequired[Timestamp]


class QueueAnswer(deps.NextPage):
    waiting: list[WaitingAnswer]


@router.get("", openapi_extra=deps.asks(*deps.PAGING))
def list_queue(request: Request, project: str, zone: str) -> QueueAnswer:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    place = None if zone == "-" else zone
    found = deps.read(request, lambda uow: queue_view.rows(uow, fleet, caller, project, place))
    page, token = deps.page_of(request, found, lambda item: item.name)
    return {"waiting": [_waiting_answer(item) for item in page], **deps.next_page(token)}


def _waiting_answer(item: Waiting) -> WaitingAnswer:
    answer: WaitingAnswer = {
        "name": item.name,
        "kind": item.kind,
        "position": item.position,
        "acceleratorType": item.accelerator_type,
        "priority": item.priority,
        "reason": item.reason,
        "waitingSince": item.waiting_since.rfc3339(),
    }
    if item.predicted_start is not None:
        answer["predictedStart"] = item.predicted_start.rfc3339()
    return answer
