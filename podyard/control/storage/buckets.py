"""Buckets: their names are one namespace of the whole yard, and each belongs to a project."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.access import identity
from podyard.control.storage import ports, refusals
from podyard.control.storage.refusals import require
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal
from podyard.domain.stored import (
    BUCKETS_PER_PROJECT_MAX,
    DEFAULT_LOCATION,
    DEFAULT_STORAGE_CLASS,
    JOBS_BUCKET_SUFFIX,
    LABELS_MAX,
    Bucket,
    Preconditions,
    check_bucket_name,
    check_storage_class,
)

_JOBS_PREFIX_CHARACTERS_MAX = 46  # leaves room for the suffix and a number in a bucket's name
_NO_LABELS: Mapping[str, str] = {}


def create(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    name: str,
    location: str = DEFAULT_LOCATION,
    storage_class: str = DEFAULT_STORAGE_CLASS,
    labels: Mapping[str, str] = _NO_LABELS,
) -> Bucket:
    require(principal, "storage.buckets.create", project, "project")
    check_bucket_name(name)
    check_storage_class(storage_class)
    _check_labels(labels)
    identity.project_row(uow, project)
    taken = storage.find_bucket(uow, name)
    if taken is not None:
        if taken.project == project:
            raise refusals.conflict(
                "Your previous request to create the named bucket succeeded and you already own it."
            )
        raise refusals.conflict(
            "The requested bucket name is not available. The bucket namespace is shared by all "
            "users of the system. "
            "Please select a different name and try again."
        )
    if len(storage.list_buckets(uow, project)) >= BUCKETS_PER_PROJECT_MAX:
        text = (
            f"the project has {BUCKETS_PER_PROJECT_MAX} buckets, the most that are "
            "allowed: delete one"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    return _insert(uow, project, name, location.upper(), storage_class, labels, principal.email)


def get(
    uow: UnitOfWork,
    principal: Principal,
    name: str,
    permission: str = "storage.buckets.get",
    what: str = "Storage bucket",
) -> Bucket:
    """`what`: the caller wants, as a refusal says it. Raises NOT_FOUND, PERMISSION_DENIED."""
    bucket = storage.find_bucket(uow, name)
    if bucket is None:
        raise refusals.bucket_not_found()
    require(principal, permission, bucket.project, what)
    return bucket


def list_buckets(uow: UnitOfWork, principal: Principal, project: str) -> list[Bucket]:
    """By name."""
    require(principal, "storage.buckets.list", project, "project")
    return storage.list_buckets(uow, project)


def patch(
    uow: UnitOfWork,
    principal: Principal,
    name: str,
    changes: Mapping[str, object],
    when: Preconditions,
) -> Bucket:
    """`changes`: new `labels` and `storage_class`, as far as they are given."""
    bucket = get(uow, principal, name, "storage.buckets.update")
    check_metageneration(bucket, when)
    after = dataclasses.replace(bucket, **changes)  # type: ignore[arg-type]
    check_storage_class(after.storage_class)
    _check_labels(after.labels)
    after = dataclasses.replace(after, metageneration=bucket.metageneration + 1, updated=uow.now)
    if after.labels != bucket.labels:
        ports.on_relabel(uow, bucket.project)
    return storage.update_bucket(uow, bucket, after)


def delete(uow: UnitOfWork, principal: Principal, name: str, when: Preconditions) -> None:
    bucket = get(uow, principal, name, "storage.buckets.delete")
    check_metageneration(bucket, when)
    if bucket.objects:
        raise refusals.conflict("The bucket you tried to delete is not empty.")
    storage.remove_bucket(uow, bucket)


def of_jobs(uow: UnitOfWork, project: str) -> Bucket:
    """The project's bucket for what its jobs read and write, made when it is first needed. The
    caller has asked for
    the permission to submit jobs."""
    first = f"{project[:_JOBS_PREFIX_CHARACTERS_MAX]}{JOBS_BUCKET_SUFFIX}"
    for name in itertools.chain([first], (f"{first}{number}" for number in itertools.count(2))):
        bucket = storage.find_bucket(uow, name)
        if bucket is None:
            return _insert(
                uow, project, name, DEFAULT_LOCATION, DEFAULT_STORAGE_CLASS, {}, uow.actor
            )
        if bucket.project == project:
            return bucket
    raise AssertionError("unreachable")


def check_metageneration(bucket: Bucket, when: Preconditions) -> None:
    if (
        when.metageneration not in (None, bucket.metageneration)
        or when.not_metageneration == bucket.metageneration
    ):
        raise refusals.condition_not_met()


def _insert(
    uow: UnitOfWork,
    project: str,
    name: str,
    location: str,
    storage_class: str,
    labels: Mapping[str, str],
    created_by: str,
) -> Bucket:
    ports.open_account(uow, project)
    made = Bucket(
        name=name,
        project=project,
        location=location,
        storage_class=storage_class,
        labels=dict(labels),
        metageneration=1,
        objects=0,
        bytes=0,
        created=uow.now,
        updated=uow.now,
        created_by=created_by,
        usage_key="",
        usage_version=0,
    )
    return storage.insert_bucket(uow, made)


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS_MAX:
        raise invalid(
            f"the bucket has {len(labels)} labels: at most {LABELS_MAX} are allowed", "labels"
        )
