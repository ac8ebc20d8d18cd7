"""Webhooks of a project: endpoints that are told of events of its nodes, jobs and queued resources.

The loop looks at new changes of states (`follow`) and puts one request for each endpoint and event;
`webhooks.py` and the workers send them. Each change has one request; requests may arrive twice and
in any order, with the event's id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.base.ids import check_resource_id, row_id
from podyard.base.rng import secret_token
from podyard.base.sealing import seal
from podyard.control.access import identity
from podyard.control.platform import webhook_urls, webhooks
from podyard.db.platform import state_changes
from podyard.db.platform import webhooks as rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal
from podyard.domain.state_change import StateChange
from podyard.domain.webhook import (
    EVERY_EVENT,
    TEST_EVENT,
    WEBHOOK_EVENTS,
    ChangeMessage,
    TryMessage,
    WebhookEndpoint,
    WebhookRequest,
    event_of,
)

ENDPOINTS_MAX = 20  # of a project: each looks at every change
CHANGES_MAX = 500  # that one look of an endpoint reads: a unit of some milliseconds
# PostgreSQL may commit changes out of the order of their numbers: so many before the last one are
# looked at again.
LATE_CHANGES = 200
DELIVERIES_SHOWN_MAX = 100
SECRET_BYTES = 24


@dataclasses.dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint, how many requests to it wait, and the newest one."""

    endpoint: WebhookEndpoint
    waiting: int
    last: WebhookRequest | None


def set_endpoint(
    uow: UnitOfWork, principal: Principal, project: str, name: str, url: str, events: Sequence[str]
) -> tuple[WebhookEndpoint, bool]:
    """The endpoint as it stands now, and whether it is new. A new one is told what happens from now
    on.

    Raises INVALID_ARGUMENT for an address or an event that cannot be, and RESOURCE_EXHAUSTED.
    """
    principal.require("podyard.webhooks.edit", project, _full(project, name))
    identity.project_row(uow, project)
    check_resource_id(name, "name")
    webhook_urls.check(url, "url", public_only=identity.has_tenants(uow))
    wanted = _events(events)
    before = rows.find_endpoint(uow, project, name)
    if before is not None:
        rows.set_endpoint(uow, before, url, wanted)
        return dataclasses.replace(before, url=url, events=wanted), False
    if len(rows.endpoints_of(uow, project)) >= ENDPOINTS_MAX:
        text = f"a project can have at most {ENDPOINTS_MAX} webhooks: delete one first"
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    seq = state_changes.last_seq(uow)
    endpoint = WebhookEndpoint(
        endpoint_key=row_id(uow.streams.stream("webhooks"), "endpoint"),
        project=project,
        name=name,
        url=url,
        events=wanted,
        secret=seal(secret_token(SECRET_BYTES)),
        created=uow.real_now,
        created_by=principal.email,
        first_seq=seq,
        looked_seq=seq,
    )
    rows.add_endpoint(uow, endpoint)
    return endpoint, True


def list_endpoints(uow: UnitOfWork, principal: Principal, project: str) -> list[EndpointState]:
    """By name."""
    principal.require("podyard.webhooks.view", project, f"projects/{project}/webhooks")
    identity.project_row(uow, project)
    return [_state(uow, endpoint) for endpoint in rows.endpoints_of(uow, project)]


def get(uow: UnitOfWork, principal: Principal, project: str, name: str) -> EndpointState:
    principal.require("podyard.webhooks.view", project, _full(project, name))
    return _state(uow, _find(uow, project, name))


def deliveries(
    uow: UnitOfWork, principal: Principal, project: str, name: str
) -> list[WebhookRequest]:
    """The newest requests to an endpoint, the newest first."""
    principal.require("podyard.webhooks.view", project, _full(project, name))
    return rows.newest(uow, _find(uow, project, name).endpoint_key, DELIVERIES_SHOWN_MAX)


def remove(uow: UnitOfWork, principal: Principal, project: str, name: str) -> None:
    """With its deliveries; those that wait are not sent."""
    principal.require("podyard.webhooks.edit", project, _full(project, name))
    rows.remove_endpoint(uow, _find(uow, project, name))


def send_test(uow: UnitOfWork, principal: Principal, project: str, name: str) -> str:
    """Sends an event that says nothing but who asked for it; returns the delivery's id."""
    principal.require("podyard.webhooks.edit", project, _full(project, name))
    endpoint = _find(uow, project, name)
    event_id = row_id(uow.streams.stream("webhooks"), "test")
    text = f"A test by {principal.email}."
    message = TryMessage(event_id, TEST_EVENT, name, project, uow.now.rfc3339(), text)
    return webhooks.put_event(uow, endpoint, message)


def follow(uow: UnitOfWork) -> None:
    """Puts requests for what has changed since the endpoints have looked."""
    for endpoint in rows.to_look_at(uow):
        _look(uow, endpoint)


def _look(uow: UnitOfWork, endpoint: WebhookEndpoint) -> None:
    since = max(endpoint.first_seq, endpoint.looked_seq - LATE_CHANGES)
    changes = state_changes.of_project(uow, endpoint.project, since, LATE_CHANGES + CHANGES_MAX)
    found = [
        (change, event)
        for change in changes
        if (event := event_of(change.machine, change.to_state))
    ]
    wanted = [
        (change, event) for change, event in found if endpoint.wants(event) and _is_entry(change)
    ]
    told = (
        rows.events_told(uow, endpoint.endpoint_key, [change.event_id for change, _ in wanted])
        if wanted
        else set()
    )
    for change, event in wanted:
        if change.event_id not in told:
            message = ChangeMessage(
                id=change.event_id,
                event=event,
                webhook=endpoint.name,
                project=endpoint.project,
                at=change.at.rfc3339(),
                resource=change.resource_name,
                state=change.to_state,
                previous_state=change.from_state,
                reason=change.reason,
                actor=change.actor,
            )
            webhooks.put_event(uow, endpoint, message)
    if changes:
        rows.keep_look(uow, endpoint, max(endpoint.looked_seq, changes[-1].seq))


def _is_entry(change: StateChange) -> bool:
    """Return whether it has come to another state: other changes, such as of labels, leave it where
    it is."""
    return change.from_state != change.to_state


def _events(given: Sequence[str]) -> tuple[str, ...]:
    known = (*WEBHOOK_EVENTS, EVERY_EVENT)
    for event in given:
        if event not in known:
            raise invalid(
                f"unknown event {event[:80]!r}: use {', '.join(WEBHOOK_EVENTS)}, or * for all",
                "events",
            )
    if not given:
        raise invalid(
            f"events must not be empty: use {', '.join(WEBHOOK_EVENTS)}, or * for all", "events"
        )
    return (
        (EVERY_EVENT,)
        if EVERY_EVENT in given
        else tuple(event for event in WEBHOOK_EVENTS if event in given)
    )


def _state(uow: UnitOfWork, endpoint: WebhookEndpoint) -> EndpointState:
    newest = rows.newest(uow, endpoint.endpoint_key, 1)
    return EndpointState(
        endpoint, rows.waiting_count(uow, endpoint.endpoint_key), newest[0] if newest else None
    )


def _find(uow: UnitOfWork, project: str, name: str) -> WebhookEndpoint:
    endpoint = rows.find_endpoint(uow, project, name)
    if endpoint is None:
        raise not_found(_full(project, name))
    return endpoint


def _full(project: str, name: str) -> str:
    return f"projects/{project}/webhooks/{name}"
