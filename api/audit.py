"""The audit log: who changed what, from where, and what was refused."""

from __future__ import annotations

from typing import NotRequired

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.control.platform import audit

router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)


class AuditLineAnswer(TypedDict):
    """`actor`: the caller's email; empty where no credential was accepted. `byDoor`: from another
    machine. `status`:
    the HTTP status of the answer. `requestId`: also in the answer's header X-Request-Id."""

    time: Timestamp
    actor: str
    address: str
    byDoor: bool
    method: str
    path: str
    status: int
    requestId: str


class AuditLines(TypedDict):
    lines: list[AuditLineAnswer]
    nextPageToken: NotRequired[str]


@router.get(
    "/audit",
    openapi_extra=deps.asks(
        {"name": "actor", "description": "Only what this email did.", "schema": {"type": "string"}},
        {
            "name": "refused",
            "description": "true: only what was refused.",
            "schema": {"type": "boolean"},
        },
        *deps.PAGING,
    ),
)
def list_lines(request: Request) -> AuditLines:
    """Changes and refusals, the newest first."""
    caller, query = deps.principal(request), request.query_params
    caller.require(audit.VIEW, "*", "audit")
    refused = deps.flag(request, "refused")
    size, before = deps.page_size(request), deps.page_after_number(request) or None
    actor = query.get("actor") or None
    found = deps.read(
        request,
        lambda uow: audit.lines(
            uow, caller, actor=actor, refused=refused, before=before, most=size + 1
        ),
    )
    answer: AuditLines = {
        "lines": [
            {
                "time": line.at.rfc3339(),
                "actor": line.actor,
                "address": line.address,
                "byDoor": line.by_door,
                "method": line.method,
                "path": line.path,
                "status": line.status,
                "requestId": line.request_id,
            }
            for line in found[:size]
        ]
    }
    if len(found) > size:
        answer["nextPageToken"] = deps.page_token(str(found[size - 1].seq))
    return answer
