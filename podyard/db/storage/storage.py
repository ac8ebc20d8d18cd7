"""Buckets, objects and uploads in parts, as records; and the usage events of buckets, in the units
that change them,
and of operations on buckets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, select, update

from podyard.base.clock import RealTime
from podyard.base.ids import row_id
from podyard.db.billing import usage_events
from podyard.db.store.records import changed_columns, columns
from podyard.db.store.transition import meter_operations, meter_size
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.storage import buckets, objects, uploads
from podyard.domain.stored import (
    Bucket,
    ObjectFields,
    OperationClass,
    Preconditions,
    StoredObject,
    Upload,
)
from podyard.domain.usage import BilledKind, StorageResource

_BUCKET = select(buckets).where(buckets.c.name == bindparam("name"))
_BUCKET_LOCKED = _BUCKET.with_for_update()
_BUCKETS_OF = (
    select(buckets).where(buckets.c.project == bindparam("project")).order_by(buckets.c.name)
)
_OBJECT = select(objects).where(
    objects.c.bucket == bindparam("bucket"), objects.c.name == bindparam("name")
)
_LISTED = (
    select(objects)
    .where(objects.c.bucket == bindparam("bucket"), objects.c.name >= bindparam("start"))
    .order_by(objects.c.name)
    .limit(bindparam("most"))
)
_LISTED_BEFORE = _LISTED.where(objects.c.name < bindparam("end"))
_REMOVE_OBJECT = delete(objects).where(
    objects.c.bucket == bindparam("of"), objects.c.name == bindparam("named")
)
_COUNT = (
    update(buckets)
    .where(buckets.c.name == bindparam("of"))
    .values(
        objects=buckets.c.objects + bindparam("more"),
        bytes=buckets.c.bytes + bindparam("more_bytes"),
        usage_version=buckets.c.usage_version + bindparam("events"),
    )
)
_UPLOAD = select(uploads).where(uploads.c.upload_id == bindparam("id"))
_UPLOAD_LOCKED = _UPLOAD.with_for_update()
_UPLOADS_OF = (
    select(func.count())
    .select_from(uploads)
    .where(uploads.c.bucket == bindparam("bucket"), uploads.c.generation.is_(None))
)


def find_bucket(uow: UnitOfWork, name: str) -> Bucket | None:
    """Locked on PostgreSQL when the unit may write: units that change the objects of one bucket
    take turns."""
    row = uow.first(_BUCKET_LOCKED if uow.writable else _BUCKET, {"name": name})
    return None if row is None else Bucket(**row)


def all_buckets(uow: UnitOfWork) -> list[tuple[Bucket, int, int]]:
    """Of the whole yard, each with the number and the bytes of the objects that it has."""
    held = (
        select(
            objects.c.bucket, func.count().label("number"), func.sum(objects.c.size).label("size")
        )
        .group_by(objects.c.bucket)
        .subquery()
    )
    found = {row["bucket"]: (int(row["number"]), int(row["size"])) for row in uow.all(select(held))}
    rows = [Bucket(**row) for row in uow.all(select(buckets).order_by(buckets.c.name))]
    return [(bucket, *found.get(bucket.name, (0, 0))) for bucket in rows]


def list_buckets(uow: UnitOfWork, project: str) -> list[Bucket]:
    """By name."""
    return [Bucket(**row) for row in uow.all(_BUCKETS_OF, {"project": project})]


def insert_bucket(uow: UnitOfWork, bucket: Bucket) -> Bucket:
    made = _with_usage_key(uow, bucket)
    uow.insert(buckets, columns(made))
    _meter(uow, made)
    return made


def update_bucket(uow: UnitOfWork, before: Bucket, after: Bucket) -> Bucket:
    """Return what is billed is of one storage class: a bucket that gets another one is billed as
    another resource."""
    if after.storage_class != before.storage_class:
        _meter(uow, _next(before), exists=False)
        after = _with_usage_key(uow, after)
        _meter(uow, after)
    elif after.labels != before.labels:
        after = _next(after)
        _meter(uow, after, says_labels=True)
        for of_class in OperationClass:
            if version := usage_events.last_version(uow, _operations_key(after, of_class)):
                event_id = row_id(uow.streams.stream("events"), "event")
                meter_operations(
                    uow, _operations(after, of_class, version + 1, 0), event_id, says_labels=True
                )
    uow.update(buckets, {"name": before.name}, changed_columns(before, after))
    return after


def remove_bucket(uow: UnitOfWork, bucket: Bucket) -> None:
    _meter(uow, _next(bucket), exists=False)
    uow.execute(delete(uploads).where(uploads.c.bucket == bucket.name))
    uow.execute(delete(buckets).where(buckets.c.name == bucket.name))


def _with_usage_key(uow: UnitOfWork, bucket: Bucket) -> Bucket:
    key = row_id(uow.streams.stream("buckets"), "bucket")
    return dataclasses.replace(bucket, usage_key=key, usage_version=1)


def _next(bucket: Bucket) -> Bucket:
    return dataclasses.replace(bucket, usage_version=bucket.usage_version + 1)


def _meter(
    uow: UnitOfWork, bucket: Bucket, *, exists: bool = True, says_labels: bool = False
) -> None:
    meter_size(uow, _as_billed(bucket), exists=exists, says_labels=says_labels)


def _as_billed(bucket: Bucket) -> StorageResource:
    return StorageResource(
        kind=BilledKind.BUCKET,
        key=bucket.usage_key,
        version=bucket.usage_version,
        name=f"projects/{bucket.project}/buckets/{bucket.name}",
        place=bucket.location.lower(),
        type=bucket.storage_class,
        labels=bucket.labels,
        created_by=bucket.created_by,
        bytes=bucket.bytes,
    )


def count_operations(
    uow: UnitOfWork, name: str, of_class: OperationClass, number: int, event_id: str
) -> None:
    """Writes so many operations on a bucket as one usage event, once for each `event_id`. Those on
    a bucket that was deleted meanwhile are dropped."""
    bucket = find_bucket(uow, name)
    if bucket is None or usage_events.is_known(uow, event_id):
        return
    version = usage_events.last_version(uow, _operations_key(bucket, of_class)) + 1
    meter_operations(uow, _operations(bucket, of_class, version, number), event_id)


def _operations(
    bucket: Bucket, of_class: OperationClass, version: int, number: int
) -> StorageResource:
    return dataclasses.replace(
        _as_billed(bucket),
        kind=BilledKind.OPERATION,
        key=_operations_key(bucket, of_class),
        version=version,
        type=f"{of_class}-{bucket.storage_class}",
        bytes=None,
        operations=number,
    )


def _operations_key(bucket: Bucket, of_class: OperationClass) -> str:
    return f"{bucket.usage_key}/{of_class}"


def find_object(uow: UnitOfWork, bucket: str, name: str) -> StoredObject | None:
    row = uow.first(_OBJECT, {"bucket": bucket, "name": name})
    return None if row is None else _object(row)


def list_objects(
    uow: UnitOfWork, bucket: str, start: str, end: str | None, most: int
) -> list[StoredObject]:
    """Names from `start` to before `end`, in the order of their bytes, at most `most`."""
    asked = {"bucket": bucket, "start": start, "most": most}
    rows = (
        uow.all(_LISTED, asked) if end is None else uow.all(_LISTED_BEFORE, {**asked, "end": end})
    )
    return [_object(row) for row in rows]


def replace_object(uow: UnitOfWork, before: StoredObject | None, after: StoredObject) -> None:
    """Writes an object, and counts it in its bucket."""
    if before is None:
        uow.insert(objects, columns(after))
    else:
        uow.update(
            objects, {"bucket": after.bucket, "name": after.name}, changed_columns(before, after)
        )
    _count(
        uow, after.bucket, int(before is None), after.size - (0 if before is None else before.size)
    )


def remove_object(uow: UnitOfWork, stored: StoredObject) -> None:
    uow.execute(_REMOVE_OBJECT, {"of": stored.bucket, "named": stored.name})
    _count(uow, stored.bucket, -1, -stored.size)


def _count(uow: UnitOfWork, bucket: str, more: int, more_bytes: int) -> None:
    events = int(more_bytes != 0)
    if more or more_bytes:
        uow.execute(
            _COUNT, {"of": bucket, "more": more, "more_bytes": more_bytes, "events": events}
        )
    if events:
        _meter(uow, Bucket(**uow.all(_BUCKET, {"name": bucket})[0]))


def find_upload(uow: UnitOfWork, upload_id: str) -> Upload | None:
    row = uow.first(_UPLOAD_LOCKED if uow.writable else _UPLOAD, {"id": upload_id})
    if row is None:
        return None
    conditions = Preconditions(**row["preconditions"])
    return Upload(**{**row, "fields": ObjectFields(**row["fields"]), "preconditions": conditions})


def insert_upload(uow: UnitOfWork, upload: Upload) -> None:
    uow.insert(uploads, columns(upload))


def finish_upload(uow: UnitOfWork, upload_id: str, generation: int) -> None:
    uow.update(uploads, {"upload_id": upload_id}, {"generation": generation})


def remove_upload(uow: UnitOfWork, upload_id: str) -> None:
    uow.execute(delete(uploads).where(uploads.c.upload_id == upload_id))


def count_uploads(uow: UnitOfWork, bucket: str) -> int:
    """That are not done."""
    return int(uow.execute(_UPLOADS_OF, {"bucket": bucket}).scalar_one())


def remove_old_uploads(uow: UnitOfWork, before: RealTime) -> None:
    uow.execute(delete(uploads).where(uploads.c.created < before))


def present_uploads(uow: UnitOfWork, upload_ids: list[str]) -> set[str]:
    """Return which of the ids are uploads that are not done."""
    asked = select(uploads.c.upload_id).where(
        uploads.c.upload_id.in_(upload_ids), uploads.c.generation.is_(None)
    )
    return {row["upload_id"] for row in uow.all(asked)}


def _object(row: Mapping[str, Any]) -> StoredObject:
    return StoredObject(**{**row, "fields": ObjectFields(**row["fields"])})
