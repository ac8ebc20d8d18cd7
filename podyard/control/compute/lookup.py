"""Names in requests: first the permission, then the row, so that who may not look does not learn
what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from podyard.base.errors import failed_precondition, not_found
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.jobs import jobs as job_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job, job_name
from podyard.domain.node import NodeRecord, node_name
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import QueuedResourceRecord, queued_resource_name

ANY_ZONE = "-"
Found = TypeVar("Found")


def node(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, node_id: str
) -> NodeRecord:
    """The live node. Raises PERMISSION_DENIED or NOT_FOUND, as the others do."""
    return _look_up(uow, principal, permission, node_name, node_rows.find, project, zone, node_id)


def queued_resource(
    uow: UnitOfWork,
    principal: Principal,
    permission: str,
    project: str,
    zone: str,
    queued_resource_id: str,
) -> QueuedResourceRecord:
    return _look_up(
        uow,
        principal,
        permission,
        queued_resource_name,
        queue_rows.find,
        project,
        zone,
        queued_resource_id,
    )


def job(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, zone: str, job_id: str
) -> Job:
    """The job. The zone "-" stands for the one that has a job of this id (AIP-159); if several
    have, raises FAILED_PRECONDITION with their names."""
    if zone == ANY_ZONE:
        principal.require(permission, project, job_name(project, zone, job_id))
        zones = job_rows.zones_of(uow, project, job_id)
        if len(zones) > 1:
            raise failed_precondition(
                f"job {job_id} exists in {len(zones)} zones: specify one of {', '.join(zones)}"
            )
        zone = zones[0] if zones else zone
    return _look_up(uow, principal, permission, job_name, job_rows.find, project, zone, job_id)


def _look_up(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    permission: str,
    name_of: Callable[[str, str, str], str],
    find: Callable[[UnitOfWork, str, str, str], Found | None],
    project: str,
    zone: str,
    name: str,
) -> Found:
    full = name_of(project, zone, name)
    principal.require(permission, project, full)
    found = find(uow, project, zone, name)
    if found is None:
        raise not_found(full)
    return found
