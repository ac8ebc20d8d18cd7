"""Holders of chips or quota that do nothing: candidates for deletion, with the reason for each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from podyard.base.clock import PlatformTime
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.jobs import jobs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.machine import ResourceKind
from podyard.domain.node import NodeRecord, NodeState
from podyard.domain.queued_resource import QueuedResourceState

TTL_LABEL = "ttl"
_TTL = re.compile(r"(\d{1,6})(s|m|h|d)")  # as labels allow: lower case letters and digits
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# A queued resource that was accepted holds quota in each of its states; in these it has, will have,
# or is losing nodes.
_AT_WORK = (
    QueuedResourceState.CREATING,
    QueuedResourceState.ACCEPTED,
    QueuedResourceState.WAITING_FOR_RESOURCES,
    QueuedResourceState.PROVISIONING,
    QueuedResourceState.ACTIVE,
    QueuedResourceState.SUSPENDING,
    QueuedResourceState.DELETING,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Leak:
    """A node of a queued resource is deleted with it. `why`: in words."""

    kind: ResourceKind
    name: str
    state: str
    why: str

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name, "state": self.state, "why": self.why}


def find(uow: UnitOfWork, project: str | None, idle_seconds: float) -> list[Leak]:
    """Leaks of a project, or (None) of all, by name: each resource once, with its first reason.
    Reads only."""
    leaks: dict[str, Leak] = {}
    for leak in (*_of_queued_resources(uow, project), *_of_nodes(uow, project, idle_seconds)):
        leaks.setdefault(leak.name, leak)
    return [leaks[name] for name in sorted(leaks)]


def _of_queued_resources(uow: UnitOfWork, project: str | None) -> Iterator[Leak]:
    for queued in queue_rows.not_in(uow, _AT_WORK, project):
        if queued.is_refused:
            continue
        yield Leak(
            ResourceKind.QUEUED_RESOURCE,
            queued.name,
            queued.state,
            "it holds quota, and neither has nodes nor waits",
        )


def _of_nodes(uow: UnitOfWork, project: str | None, idle_seconds: float) -> Iterator[Leak]:
    for node in node_rows.live(uow, project):
        if node.state is NodeState.DELETING:
            continue
        why = _past_ttl(uow.now, node) or _idle(uow, node, idle_seconds)
        if why and node.queued_resource:
            # Deleting one node of it would only suspend it.
            yield Leak(
                ResourceKind.QUEUED_RESOURCE,
                node.queued_resource,
                node.state,
                f"node {node.node_id}: {why}",
            )
        elif why:
            yield Leak(ResourceKind.NODE, node.name, node.state, why)


def _past_ttl(now: PlatformTime, node: NodeRecord) -> str:
    match = _TTL.fullmatch(str(node.spec.labels.get(TTL_LABEL, "")))
    if match is None:
        return ""
    ends = node.created.plus_seconds(int(match[1]) * _SECONDS[match[2]])
    return f"its label {TTL_LABEL}={match[0]} ended at {ends.rfc3339()}" if ends <= now else ""


def _idle(uow: UnitOfWork, node: NodeRecord, idle_seconds: float) -> str:
    if node.state is not NodeState.READY or node.ready_since is None:
        return ""
    found = jobs.on_node(uow, node.node_key)
    if not all(job.has_ended for job in found):
        return ""
    since = max([node.ready_since, *(job.ended for job in found if job.ended is not None)])
    if since.plus_seconds(idle_seconds) > uow.now:
        return ""
    return f"it is READY without a job since {since.rfc3339()}"
