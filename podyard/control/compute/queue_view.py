"""The queue: what waits, at which place, why, and when it will start. Reads only."""

from __future__ import annotations

import dataclasses
from enum import StrEnum

from podyard.base.clock import PlatformTime
from podyard.control.compute import node_checks
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.jobs import jobs as job_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import fleet as fleet_rows
from podyard.domain.fleet import Fleet, FleetSnapshot
from podyard.domain.job import Job
from podyard.domain.machine import ResourceKind
from podyard.domain.principal import Principal
from podyard.scheduler.cycle import order
from podyard.scheduler.jobs import turn
from podyard.scheduler.predict import predict
from podyard.scheduler.probe import EmptyPods
from podyard.scheduler.queue import NodeGroup, Pool, key_of, pool_of

_INSTANCES = "/instances/"  # of the names on Compute Engine's road


class Obstacle(StrEnum):
    """An obstacle between a request and its chips: others have them, or no pod of the zone could
    ever hold the request."""

    NONE = ""
    NO_ROOM = "no room"
    DOES_NOT_FIT = "does not fit"


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """One that waits. `position` counts from 1 over all projects: among those that
    wait for the pool, or of a job whose node is there, among the jobs that wait for that node."""

    name: str
    kind: ResourceKind
    position: int
    accelerator_type: str
    priority: int
    reason: str
    predicted_start: PlatformTime | None
    waiting_since: PlatformTime
    obstacle: Obstacle = Obstacle.NONE


def rows(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, location: str | None
) -> list[Waiting]:
    """Return what of the project waits in one zone, or (None: `locations/-`) in all, in the order
    of the queue; then the jobs that wait for a node that they share, by node."""
    principal.require("tpu.nodes.list", project, f"projects/{project}/locations/{location or '-'}")
    if location is not None:
        node_checks.zone_of(fleet, location)
    snapshot, now = fleet_rows.load(uow, fleet), uow.now
    shown = _for_chips(uow, snapshot, now, project)
    return [row for zone, row in (*shown, *_for_nodes(uow, project)) if location in (None, zone)]


def _for_chips(
    uow: UnitOfWork, snapshot: FleetSnapshot, now: PlatformTime, project: str
) -> list[tuple[str, Waiting]]:
    """(zone, row) of each group of the project."""
    mine = [request for request in snapshot.waiting if request.project == project]
    names = _names(uow, project) if mine else {}
    starts = predict(snapshot, now, {pool_of(request) for request in mine})
    positions: dict[Pool, int] = {}
    pods = EmptyPods(snapshot, now)
    found = []
    for group in order(snapshot, now):
        pool = pool_of(group[0])
        positions[pool] = positions.get(pool, 0) + 1
        if group[0].project == project and key_of(group) in names:
            kind, name = names[key_of(group)]
            row = _row(group, kind, name, positions[pool], starts.get(key_of(group)))
            row = dataclasses.replace(row, obstacle=_obstacle(pods, group, now))
            found.append((group[0].zone, row))
    return found


def _obstacle(pods: EmptyPods, group: NodeGroup, now: PlatformTime) -> Obstacle:
    first = group[0]
    if not pods.can_hold(group):
        return Obstacle.DOES_NOT_FIT
    has_its_turn = first.not_before is None or first.not_before <= now
    return Obstacle.NO_ROOM if has_its_turn and first.wait_reason else Obstacle.NONE


def _row(
    group: NodeGroup, kind: ResourceKind, name: str, position: int, start: PlatformTime | None
) -> Waiting:
    first = group[0]
    types = ", ".join(dict.fromkeys(request.accelerator_type.name for request in group))
    return Waiting(
        name, kind, position, types, first.priority, first.wait_reason, start, first.created
    )


def _names(uow: UnitOfWork, project: str) -> dict[str, tuple[ResourceKind, str]]:
    """Key of a group -> (kind, name): a node that the platform makes for a job is shown as the
    job."""
    found = {
        key: (ResourceKind.INSTANCE if _INSTANCES in name else ResourceKind.NODE, name)
        for key, name in node_rows.waiting_names(uow, project).items()
    }
    for job in job_rows.names_with_own_node(uow, project):
        if job.node_key in found:
            found[job.node_key] = found[job.job_key] = (ResourceKind.JOB, job.name)
    for key, name in queue_rows.names(uow, project).items():
        found[key] = (ResourceKind.QUEUED_RESOURCE, name)
    return found


def _for_nodes(uow: UnitOfWork, project: str) -> list[tuple[str, Waiting]]:
    """(zone, row) of each job that waits for its turn on a node that is there."""
    by_node: dict[str, list[Job]] = {}
    for job in job_rows.list_waiting_with_node(uow, project):
        by_node.setdefault(job.node_key, []).append(job)
    found = []
    for key in sorted(by_node):
        for position, job in enumerate(sorted(by_node[key], key=turn), 1):
            kind, priority = job.accelerator_type, job.spec.priority
            waiting = Waiting(
                job.name,
                ResourceKind.JOB,
                position,
                kind,
                priority,
                job.state_reason,
                None,
                job.created,
            )
            found.append((job.zone, waiting))
    return found
