"""Webhooks of a project: what they are told, their deliveries, and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.base.sealing import unseal
from podyard.control.platform import webhook_endpoints
from podyard.control.platform.webhook_endpoints import EndpointState
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.webhook import EVERY_EVENT, WEBHOOK_EVENTS, WebhookRequest
from podyard.http import context
from podyard.web.kit.commands import Command, line
from podyard.web.kit.render import ConsoleRoute, form_of, page, project_url, see_other_with_notice

USUAL_EVENTS = ("job.succeeded", "job.failed", "job.recovering")
EVENT_FIELD = "event."  # of the form, before an event

router = APIRouter(prefix="/console/{project}/settings/webhooks", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    """All endpoints; with `?name=` the deliveries to one of them."""
    return _page(request, project, {})


@router.post("/{action}")
async def act(request: Request, project: str, action: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _act(request, project, action, fields))


def _act(request: Request, project: str, action: str, fields: Mapping[str, str]) -> Response:
    caller, name = context.principal(request), fields.get("name", "").strip()
    url = project_url(project, "settings", "webhooks")
    try:
        if action == "set":
            address, events = fields.get("url", "").strip(), _events(fields)
            found, new = context.write(
                request,
                lambda uow: webhook_endpoints.set_endpoint(
                    uow, caller, project, name, address, events
                ),
            )
            if new:
                return _page(
                    request, project, {}, secret=unseal(found.secret), secret_of=f"Secret of {name}"
                )
            return see_other_with_notice(url, f"{name} is changed.")
        if action == "test":
            context.write(
                request, lambda uow: webhook_endpoints.send_test(uow, caller, project, name)
            )
            return see_other_with_notice(f"{url}?name={name}", "A test event is on its way.")
        if action == "delete":
            context.write(request, lambda uow: webhook_endpoints.remove(uow, caller, project, name))
            return see_other_with_notice(url, f"{name} is deleted.")
        raise invalid(f"unknown action {action!r}", "action")
    except PodyardError as error:
        return _page(request, project, fields, error=error)


def _events(fields: Mapping[str, str]) -> Sequence[str]:
    return [event for event in (*WEBHOOK_EVENTS, EVERY_EVENT) if fields.get(EVENT_FIELD + event)]


def _page(
    request: Request,
    project: str,
    fields: Mapping[str, str],
    *,
    secret: str = "",
    secret_of: str = "",
    error: PodyardError | None = None,
) -> Response:
    """`secret`: shown once, on the page that answers."""
    caller, name = context.principal(request), request.query_params.get("name", "")

    def body(uow: UnitOfWork) -> tuple[list[EndpointState], list[WebhookRequest] | None]:
        found = webhook_endpoints.list_endpoints(uow, caller, project)
        return found, webhook_endpoints.deliveries(uow, caller, project, name) if name else None

    endpoints, deliveries = context.read(request, body)
    chosen = _events(fields) if fields else USUAL_EVENTS
    flags = [
        ("--url", fields.get("url", "") or "https://example.com/hook"),
        *(("--event", event) for event in chosen),
    ]
    words = ["podyard", "webhook", "set", fields.get("name", "") or "NAME"]
    return page(
        request,
        "webhooks.html",
        status=200 if error is None else error.code.http_status,
        section="settings",
        wide=True,
        project=project,
        endpoints=endpoints,
        name=name,
        deliveries=deliveries,
        events=list(WEBHOOK_EVENTS),
        chosen=chosen,
        event_field=EVENT_FIELD,
        fields=fields,
        secret=secret,
        secret_of=secret_of,
        may_edit=caller.may("podyard.webhooks.edit", project),
        url=project_url(project, "settings", "webhooks"),
        error=error.message if error else None,
        commands=[Command("podyard", line(words, [("--project", project), *flags], []))],
    )
