"""Webhooks: endpoints of a project, the events that they can be told, and requests to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.clock import RealTime
from podyard.domain.job import JobState
from podyard.domain.machine import ResourceKind
from podyard.domain.node import NodeState
from podyard.domain.queued_resource import QueuedResourceState

EVERY_EVENT = "*"
TEST_EVENT = "test"  # asked for by a user; no endpoint subscribes to it

# Event -> what changes, and the state that it changes to.
WEBHOOK_EVENTS: Mapping[str, tuple[ResourceKind, str]] = {
    "job.submitted": (ResourceKind.JOB, JobState.QUEUED),
    "job.running": (ResourceKind.JOB, JobState.RUNNING),
    "job.recovering": (ResourceKind.JOB, JobState.RECOVERING),
    "job.succeeded": (ResourceKind.JOB, JobState.SUCCEEDED),
    "job.failed": (ResourceKind.JOB, JobState.FAILED),
    "job.cancelled": (ResourceKind.JOB, JobState.CANCELLED),
    "node.ready": (ResourceKind.NODE, NodeState.READY),
    "node.stopped": (ResourceKind.NODE, NodeState.STOPPED),
    "node.preempted": (ResourceKind.NODE, NodeState.PREEMPTED),
    "node.terminated": (ResourceKind.NODE, NodeState.TERMINATED),
    "node.repairing": (ResourceKind.NODE, NodeState.REPAIRING),
    "node.deleted": (ResourceKind.NODE, NodeState.GONE),
    "queuedResource.active": (ResourceKind.QUEUED_RESOURCE, QueuedResourceState.ACTIVE),
    "queuedResource.suspended": (ResourceKind.QUEUED_RESOURCE, QueuedResourceState.SUSPENDED),
    "queuedResource.failed": (ResourceKind.QUEUED_RESOURCE, QueuedResourceState.FAILED),
}
_BY_STATE = {(str(kind), state): event for event, (kind, state) in WEBHOOK_EVENTS.items()}


def event_of(machine: str, state: str) -> str | None:
    """The event that a change to this state is; None: no webhook is told."""
    return _BY_STATE.get((machine, state))


@dataclasses.dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """An address that a project's events are sent to. `events`: of `WEBHOOK_EVENTS`, or `*` alone.
    `secret` is sealed and signs each request.

    `first_seq`: changes up to this number were there before it; `looked_seq`: the last change that
    it has looked at.
    """

    endpoint_key: str
    project: str
    name: str
    url: str
    events: Sequence[str]
    secret: str
    created: RealTime
    created_by: str
    first_seq: int
    looked_seq: int

    def wants(self, event: str) -> bool:
        return event in self.events or EVERY_EVENT in self.events


@dataclasses.dataclass(frozen=True, slots=True)
class EventMessage:
    """The message to an endpoint: the body of a request, whose names are spelled as JSON has them.
    `id` is the event's: requests may arrive twice."""

    id: str
    event: str
    webhook: str
    project: str
    at: str


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeMessage(EventMessage):
    """A resource has come to another state."""

    resource: str
    state: str
    previous_state: str
    reason: str
    actor: str


@dataclasses.dataclass(frozen=True, slots=True)
class TryMessage(EventMessage):
    """A user has asked for it, to see whether it arrives."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class WebhookRequest:
    """One request to an address. `fence`: of the try that may write its result; `next_try` None:
    nothing more is to be done; `outcome`: of the last try. `event_id`: of the change, or of the
    budget's entry, that it tells.

    `endpoint_key`, `event`: of a project's endpoint; None: a budget sends it, and `created` is
    None.
    """

    webhook_id: str
    event_id: str
    project: str
    url: str
    body: str
    secret: str
    tries: int = 0
    fence: int = 0
    next_try: RealTime | None = None
    outcome: str = ""
    endpoint_key: str | None = None
    event: str | None = None
    created: RealTime | None = None
    delivered: bool = False
