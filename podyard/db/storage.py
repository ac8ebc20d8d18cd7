"""Buckets, objects and uploads in parts, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, select, update

from podyard.base.clock import RealTime
from podyard.db.records import changed_columns, columns
from podyard.db.tables_storage import buckets, objects, uploads
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.stored import Bucket, ObjectFields, Preconditions, StoredObject, Upload

_BUCKET = select(buckets).where(buckets.c.name == bindparam("name"))
_BUCKET_LOCKED = _BUCKET.with_for_update()
_BUCKETS_OF = select(buckets).where(buckets.c.project == bindparam("project")).order_by(buckets.c.name)
_OBJECT = select(objects).where(objects.c.bucket == bindparam("bucket"), objects.c.name == bindparam("name"))
_LISTED = (
    select(objects)
    .where(objects.c.bucket == bindparam("bucket"), objects.c.name >= bindparam("start"))
    .order_by(objects.c.name)
    .limit(bindparam("most"))
)
_LISTED_BEFORE = _LISTED.where(objects.c.name < bindparam("end"))
_REMOVE_OBJECT = delete(objects).where(objects.c.bucket == bindparam("of"), objects.c.name == bindparam("named"))
_COUNT = (
    update(buckets)
    .where(buckets.c.name == bindparam("of"))
    .values(objects=buckets.c.objects + bindparam("more"), bytes=buckets.c.bytes + bindparam("more_bytes"))
)
_UPLOAD = select(uploads).where(uploads.c.upload_id == bindparam("id"))
_UPLOAD_LOCKED = _UPLOAD.with_for_update()
_UPLOADS_OF = (
    select(func.count())
    .select_from(uploads)
    .where(uploads.c.bucket == bindparam("bucket"), uploads.c.generation.is_(None))
)


def find_bucket(uow: UnitOfWork, name: str) -> Bucket | None:
    """Locked on PostgreSQL when the unit may write: units that change the objects of one bucket take turns."""
    row = uow.first(_BUCKET_LOCKED if uow.writable else _BUCKET, {"name": name})
    return None if row is None else Bucket(**row)


def list_buckets(uow: UnitOfWork, project: str) -> list[Bucket]:
    """By name."""
    return [Bucket(**row) for row in uow.all(_BUCKETS_OF, {"project": project})]


def insert_bucket(uow: UnitOfWork, bucket: Bucket) -> None:
    uow.insert(buckets, columns(bucket))


def update_bucket(uow: UnitOfWork, before: Bucket, after: Bucket) -> None:
    uow.update(buckets, {"name": before.name}, changed_columns(before, after))


def remove_bucket(uow: UnitOfWork, name: str) -> None:
    uow.execute(delete(uploads).where(uploads.c.bucket == name))
    uow.execute(delete(buckets).where(buckets.c.name == name))


def find_object(uow: UnitOfWork, bucket: str, name: str) -> StoredObject | None:
    row = uow.first(_OBJECT, {"bucket": bucket, "name": name})
    return None if row is None else _object(row)


def list_objects(uow: UnitOfWork, bucket: str, start: str, end: str | None, most: int) -> list[StoredObject]:
    """Names from `start` to before `end`, in the order of their bytes, at most `most`."""
    asked = {"bucket": bucket, "start": start, "most": most}
    rows = uow.all(_LISTED, asked) if end is None else uow.all(_LISTED_BEFORE, {**asked, "end": end})
    return [_object(row) for row in rows]


def replace_object(uow: UnitOfWork, before: StoredObject | None, after: StoredObject) -> None:
    """Writes an object, and counts it in its bucket."""
    if before is None:
        uow.insert(objects, columns(after))
    else:
        uow.update(objects, {"bucket": after.bucket, "name": after.name}, changed_columns(before, after))
    _count(uow, after.bucket, int(before is None), after.size - (0 if before is None else before.size))


def remove_object(uow: UnitOfWork, stored: StoredObject) -> None:
    uow.execute(_REMOVE_OBJECT, {"of": stored.bucket, "named": stored.name})
    _count(uow, stored.bucket, -1, -stored.size)


def _count(uow: UnitOfWork, bucket: str, more: int, more_bytes: int) -> None:
    if more or more_bytes:
        uow.execute(_COUNT, {"of": bucket, "more": more, "more_bytes": more_bytes})


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
    """Which of the ids are uploads that are not done."""
    asked = select(uploads.c.upload_id).where(uploads.c.upload_id.in_(upload_ids), uploads.c.generation.is_(None))
    return {row["upload_id"] for row in uow.all(asked)}


def _object(row: Mapping[str, Any]) -> StoredObject:
    return StoredObject(**{**row, "fields": ObjectFields(**row["fields"])})
