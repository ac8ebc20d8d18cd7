"""Making, finding and deleting resources without a life, which all rooms of networks do alike. The
caller has checked the permission."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.ids import row_id
from podyard.control.access import identity
from podyard.db.compute import resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.network import check_name
from podyard.domain.compute.place import ComputePlace
from podyard.domain.compute.refusal import already_exists, quota_exceeded, resource_not_found
from podyard.domain.compute.resource import COLLECTIONS, ComputeResource
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import OperationTarget
from podyard.domain.principal import Principal

_NUMBER_BITS = 62  # as Compute Engine's are


@dataclasses.dataclass(frozen=True, slots=True)
class Quota:
    """The most of one kind that a project may have, and Google's name of it."""

    metric: str
    limit: int


@dataclasses.dataclass(frozen=True, slots=True)
class NewResource:
    """A resource that is asked for."""

    kind: ResourceKind
    place: ComputePlace
    name: str
    spec: Mapping[str, object]


def insert(
    uow: UnitOfWork, principal: Principal, project: str, new: NewResource, quota: Quota
) -> ComputeResource:
    """Raises `invalid`, `alreadyExists` or `quotaExceeded`."""
    kind, place, name = new.kind, new.place, check_name(new.name)
    identity.project_row(uow, project)  # locked: two insertions count one after the other
    if resources.find(uow, project, kind, place.name, name) is not None:
        raise already_exists(path_to(project, kind, place, name))
    if resources.count(uow, project, kind) >= quota.limit:
        raise quota_exceeded(quota.metric, quota.limit)
    stream = uow.streams.stream("compute_resources")
    resource = ComputeResource(
        row_id(stream, kind.value),
        project,
        kind,
        place.name,
        name,
        stream.getrandbits(_NUMBER_BITS) + 1,
        new.spec,
        uow.now,
        principal.email,
    )
    resources.insert(uow, resource)
    return resource


def find(
    uow: UnitOfWork, project: str, kind: ResourceKind, place: ComputePlace, name: str
) -> ComputeResource:
    """Raises `notFound`."""
    resource = resources.find(uow, project, kind, place.name, name)
    if resource is None:
        raise resource_not_found(path_to(project, kind, place, name))
    return resource


def path_to(project: str, kind: ResourceKind, place: ComputePlace, name: str) -> str:
    return f"projects/{project}/{place.path}/{COLLECTIONS[kind]}/{name}"


def target_of(resource: ComputeResource) -> OperationTarget:
    """The resource, as the target of an operation on it."""
    return OperationTarget(
        resource.kind,
        resource.resource_key,
        resource.project,
        resource.place,
        resource.path,
        resource.number,
    )
