"""Objects: each has one live version, which is replaced as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from podyard.base.contents import Content
from podyard.base.errors import Code, PodyardError
from podyard.control.storage import buckets, refusals
from podyard.control.storage.refusals import require
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal
from podyard.domain.stored import (
    OBJECTS_PER_BUCKET_MAX,
    ObjectFields,
    Preconditions,
    StoredObject,
    check_fields,
    check_object_name,
)

_OBJECT = "Storage object"  # in refusals
_NANOS_PER_MICRO = 1000
_PLAIN, _ALWAYS = ObjectFields(), Preconditions()
_FIRST_CHARACTER, _LAST_CHARACTER = "\x01", chr(0x10FFFF)  # of names
_BATCH = 1000  # rows of one statement


def find(
    uow: UnitOfWork,
    principal: Principal,
    bucket: str,
    name: str,
    permission: str = "storage.objects.get",
) -> StoredObject:
    """The live version. Raises NOT_FOUND (of the bucket or the object), PERMISSION_DENIED."""
    buckets.get(uow, principal, bucket, permission, _OBJECT)
    stored = storage.find_object(uow, bucket, name)
    if stored is None:
        raise refusals.object_not_found(bucket, name)
    return stored


def put(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    bucket: str,
    name: str,
    content: Content,
    fields: ObjectFields = _PLAIN,
    when: Preconditions = _ALWAYS,
    *,
    component_count: int = 0,
) -> StoredObject:
    """Makes `content` the live version. Raises FAILED_PRECONDITION when `when` does not hold of the
    one before."""
    before = check_put(uow, principal, bucket, name, fields, when)
    generation = max(
        uow.real_now.nanos // _NANOS_PER_MICRO, 0 if before is None else before.generation + 1
    )
    after = StoredObject(
        bucket=bucket,
        name=name,
        generation=generation,
        metageneration=1,
        digest=content.digest,
        size=content.size,
        crc32c=content.crc32c,
        md5="" if component_count else content.md5,
        component_count=component_count,
        fields=fields,
        created=uow.now,
        updated=uow.now,
        created_by=principal.email,
    )
    storage.replace_object(uow, before, after)
    return after


def check_put(
    uow: UnitOfWork,
    principal: Principal,
    bucket: str,
    name: str,
    fields: ObjectFields,
    when: Preconditions,
) -> StoredObject | None:
    """Return whether an object may be written; the version that it replaces."""
    check_object_name(name)
    check_fields(fields)
    owner = buckets.get(uow, principal, bucket, "storage.objects.create", _OBJECT)
    before = storage.find_object(uow, bucket, name)
    if before is not None:
        require(principal, "storage.objects.delete", owner.project, _OBJECT)
    if not when.is_met_by(before):
        raise refusals.condition_not_met()
    if before is None and owner.objects >= OBJECTS_PER_BUCKET_MAX:
        text = (
            f"the bucket has {OBJECTS_PER_BUCKET_MAX} objects, the most that are allowed: use "
            "another bucket"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    return before


def patch(
    uow: UnitOfWork,
    principal: Principal,
    bucket: str,
    name: str,
    change: Callable[[ObjectFields], ObjectFields],
    when: Preconditions,
) -> StoredObject:
    before = find(uow, principal, bucket, name, "storage.objects.update")
    if not when.is_met_by(before):
        raise refusals.condition_not_met()
    fields = change(before.fields)
    check_fields(fields)
    after = dataclasses.replace(
        before, fields=fields, metageneration=before.metageneration + 1, updated=uow.now
    )
    storage.replace_object(uow, before, after)
    return after


def copy(
    uow: UnitOfWork,
    principal: Principal,
    source: StoredObject,
    bucket: str,
    name: str,
    fields: ObjectFields,
    when: Preconditions,
) -> StoredObject:
    """The content of `source`, which this unit has found, as another object."""
    content = Content(source.digest, source.size, source.crc32c, source.md5)
    return put(
        uow, principal, bucket, name, content, fields, when, component_count=source.component_count
    )


def delete(
    uow: UnitOfWork, principal: Principal, bucket: str, name: str, when: Preconditions
) -> None:
    stored = find(uow, principal, bucket, name, "storage.objects.delete")
    if not when.is_met_by(stored):
        raise refusals.condition_not_met()
    storage.remove_object(uow, stored)


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page: `following` is the name that the next one starts with; None: there is none."""

    objects: list[StoredObject]
    prefixes: list[str]
    following: str | None


def list_objects(  # noqa: PLR0913
    uow: UnitOfWork,
    principal: Principal,
    bucket: str,
    most: int,
    *,
    prefix: str = "",
    delimiter: str = "",
    start: str = "",
    end: str = "",
    with_trailing_delimiter: bool = False,
    is_wanted: Callable[[str], bool] | None = None,
) -> ObjectPage:
    """Objects in the order of their names' bytes, from `start` to before `end`. Names that hold
    `delimiter` behind `prefix` are summed up as prefixes. At most `most` objects and prefixes."""
    buckets.get(uow, principal, bucket, "storage.objects.list")
    first, last = max(start, prefix), _least(end, _after(prefix))
    page = ObjectPage([], [], None)
    while last is None or first < last:
        rows = storage.list_objects(uow, bucket, first, last, _BATCH)
        for stored in rows:
            if stored.name < first:
                continue  # below a prefix that was listed
            if len(page.objects) + len(page.prefixes) == most:
                return dataclasses.replace(page, following=first)
            at = stored.name.find(delimiter, len(prefix)) if delimiter else -1
            below = stored.name[: at + len(delimiter)] if at >= 0 else ""
            is_folder = below == stored.name
            if is_wanted is not None and not is_wanted(below or stored.name):
                first = f"{stored.name}{_FIRST_CHARACTER}"
                continue
            if below:
                page.prefixes.append(below)
            if not below or (is_folder and with_trailing_delimiter):
                page.objects.append(stored)
            first = (_after(below) if below else None) or f"{stored.name}{_FIRST_CHARACTER}"
        if len(rows) < _BATCH:
            break
    return page


def _after(prefix: str) -> str | None:
    """The first text behind all that begin with `prefix`; None if there is none."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # not the halves of surrogate pairs
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)


def _least(*texts: str | None) -> str | None:
    return min((text for text in texts if text), default=None)
