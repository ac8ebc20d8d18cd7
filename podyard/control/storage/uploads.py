"""Uploads in parts ("resumable uploads"): what is known of one from its beginning to its end. The
parts are files."""

from __future__ import annotations

from podyard.base.contents import Content
from podyard.base.errors import Code, ErrorInfo, PodyardError, invalid
from podyard.base.rng import secret_token
from podyard.control.storage import objects, refusals
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal
from podyard.domain.stored import (
    OBJECT_BYTES_MAX,
    UPLOADS_PER_BUCKET_MAX,
    ObjectFields,
    Preconditions,
    StoredObject,
    Upload,
)

DIGEST_MISMATCH = "DIGEST_MISMATCH"


def begin(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    bucket: str,
    name: str,
    fields: ObjectFields,
    when: Preconditions,
    *,
    size: int | None = None,
    crc32c: int | None = None,
    md5: str | None = None,
) -> Upload:
    """`crc32c` and `md5`: what the content must have."""
    objects.check_put(uow, principal, bucket, name, fields, when)
    if size is not None and size > OBJECT_BYTES_MAX:
        raise invalid(
            f"the object has {size} bytes: at most {OBJECT_BYTES_MAX} are allowed",
            "X-Upload-Content-Length",
        )
    if storage.count_uploads(uow, bucket) >= UPLOADS_PER_BUCKET_MAX:
        text = (
            f"the bucket has {UPLOADS_PER_BUCKET_MAX} uploads that are not done: finish "
            "or cancel some"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    made = Upload(
        upload_id=secret_token(),
        bucket=bucket,
        name=name,
        fields=fields,
        preconditions=when,
        size=size,
        crc32c=crc32c,
        md5=md5,
        created=uow.real_now,
        created_by=principal.email,
    )
    storage.insert_upload(uow, made)
    return made


def find(
    uow: UnitOfWork, principal: Principal, upload_id: str
) -> tuple[Upload, StoredObject | None]:
    """The upload, and the object that it made if it is done. Raises NOT_FOUND, also for an upload
    of another caller."""
    upload = storage.find_upload(uow, upload_id)
    if upload is None or upload.created_by != principal.email:
        raise _no_upload()
    if upload.generation is None:
        return upload, None
    stored = storage.find_object(uow, upload.bucket, upload.name)
    if stored is None or stored.generation != upload.generation:
        raise _no_upload()  # replaced or deleted since
    return upload, stored


def finish(uow: UnitOfWork, principal: Principal, upload_id: str, content: Content) -> StoredObject:
    """Makes the object. A second call answers the object of the first one."""
    upload, stored = find(uow, principal, upload_id)
    if stored is not None:
        return stored
    check_digests(content, upload.crc32c, upload.md5)
    stored = objects.put(
        uow, principal, upload.bucket, upload.name, content, upload.fields, upload.preconditions
    )
    storage.finish_upload(uow, upload_id, stored.generation)
    return stored


def cancel(uow: UnitOfWork, principal: Principal, upload_id: str) -> None:
    upload, _ = find(uow, principal, upload_id)
    storage.remove_upload(uow, upload.upload_id)


def check_digests(content: Content, crc32c: int | None, md5: str | None) -> None:
    """Raises INVALID_ARGUMENT when the content is not what its client has announced (None:
    nothing)."""
    for name, given, computed in (("CRC32C", crc32c, content.crc32c), ("MD5", md5, content.md5)):
        if given is not None and given != computed:
            text = (
                f"Provided {name} hash does not match the {name} hash of the content that "
                "arrived: send it again"
            )
            raise PodyardError(
                Code.INVALID_ARGUMENT, text, [ErrorInfo(DIGEST_MISMATCH, refusals.DOMAIN, {})]
            )


def _no_upload() -> PodyardError:
    text = "the upload is not known (it was cancelled, or is older than a week): begin again"
    return refusals.refuse(Code.NOT_FOUND, text, refusals.NOT_FOUND)
