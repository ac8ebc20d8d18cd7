"""Writes of objects: at once, with their metadata, or in parts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from podyard.api.storage import bodies, resources
from podyard.api.storage.answers import (
    CANCELLED_STATUS,
    answer,
    own_address,
    preconditions,
    quote_name,
)
from podyard.api.storage.parts import contents, open_uploads, read
from podyard.base.contents import Content, Incoming
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.storage import objects, uploads
from podyard.domain.stored import (
    OBJECT_BYTES_MAX,
    ObjectFields,
    Preconditions,
    StoredObject,
    Upload,
)
from podyard.http.context import principal, write_async

# What is kept of a part that is not the last one
# (cloud.google.com/storage/docs/performing-resumable-uploads).
PART_BYTES = 256 << 10
RESUME_STATUS = 308
_RANGE = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)")


@dataclasses.dataclass(frozen=True, slots=True)
class Announced:
    """The fields of an object that a client sends before its content."""

    bucket: str
    name: str
    fields: ObjectFields
    when: Preconditions
    crc32c: int | None
    md5: str | None


async def insert(request: Request, bucket: str) -> Response:
    """POST upload/storage/v1/b/BUCKET/o"""
    kind = request.query_params.get("uploadType", "")
    if kind == "media":
        announced = _announce(request, bucket, _of_query(request))
        return _make(request, await receive(request, announced, bodies.pieces(request)))
    if kind == "multipart":
        parts = bodies.MultipartBody(request)
        body, content_type = await parts.head()
        announced = _announce(
            request, bucket, {"contentType": content_type or None, **_of_query(request), **body}
        )
        return _make(request, await receive(request, announced, parts.content()))
    if kind == "resumable":
        body = await bodies.read_json(request)
        announced = _announce(request, bucket, {**_of_query(request), **body})
        size = request.headers.get("x-upload-content-length")
        upload = await begin(request, announced, int(size) if size and size.isdigit() else None)
        place = f"{own_address(request)}/upload/storage/v1/b/{quote_name(bucket)}/o"
        location = f"{place}?uploadType=resumable&upload_id={upload.upload_id}"
        return Response(headers={"Location": location, "X-GUploader-UploadID": upload.upload_id})
    raise invalid(
        f"unknown uploadType '{kind[:40]}': use media, multipart or resumable", "uploadType"
    )


def _of_query(request: Request) -> dict[str, Any]:
    """Return what the query and the headers say; the body goes before it."""
    found: dict[str, Any] = {}
    if "name" in request.query_params:
        found["name"] = request.query_params["name"]
    if "contentEncoding" in request.query_params:
        found["contentEncoding"] = request.query_params["contentEncoding"]
    is_media = request.query_params.get("uploadType") == "media"
    kind = request.headers.get("content-type" if is_media else "x-upload-content-type")
    return found | ({"contentType": kind} if kind else {})


def _announce(request: Request, bucket: str, body: Mapping[str, Any]) -> Announced:
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise PodyardError(Code.INVALID_ARGUMENT, "Required parameter: name (of the object)")
    crc32c, md5 = resources.hash_header(request.headers.get("x-goog-hash", ""))
    return Announced(
        bucket=bucket,
        name=name,
        fields=resources.object_fields(body),
        when=preconditions(request),
        crc32c=resources.read_crc32c(body["crc32c"]) if body.get("crc32c") else crc32c,
        md5=resources.read_md5(body["md5Hash"]) if body.get("md5Hash") else md5,
    )


def _make(request: Request, stored: StoredObject) -> Response:
    hashes = f"crc32c={resources.crc32c_text(stored.crc32c)},md5={resources.md5_text(stored.md5)}"
    return answer(
        resources.object_resource(stored, own_address(request)), headers={"X-Goog-Hash": hashes}
    )


async def receive(
    request: Request, announced: Announced, source: AsyncIterator[bytes]
) -> StoredObject:
    """The whole content, and then the object."""
    caller = principal(request)
    where = (caller, announced.bucket, announced.name)
    # Before the content comes: nobody sends gigabytes to be refused.
    await read(
        request, lambda uow: objects.check_put(uow, *where, announced.fields, announced.when)
    )
    async with bodies.receiving(contents(request), OBJECT_BYTES_MAX) as incoming:
        await bodies.write(incoming, source)
        uploads.check_digests(incoming.content(), announced.crc32c, announced.md5)
        content = await to_thread.run_sync(incoming.store)
    return await write_async(
        request, lambda uow: objects.put(uow, *where, content, announced.fields, announced.when)
    )


async def begin(request: Request, announced: Announced, size: int | None) -> Upload:
    unit = partial(
        uploads.begin,
        principal=principal(request),
        bucket=announced.bucket,
        name=announced.name,
        fields=announced.fields,
        when=announced.when,
        size=size,
        crc32c=announced.crc32c,
        md5=announced.md5,
    )
    return await write_async(request, unit)


async def proceed(request: Request, upload_id: str) -> StoredObject | Response:
    """PUT or POST to an upload in parts: a part of it, all of it, or the question how far it is.
    The object once it is complete, else how much has come."""
    caller = principal(request)
    upload, stored = await read(
        request, partial(uploads.find, principal=caller, upload_id=upload_id)
    )
    if stored is not None:
        return stored
    header = request.headers.get("content-range")
    span = None if header is None else _RANGE.fullmatch(header.strip())
    if header is not None and span is None:
        raise invalid(f"Failed to parse Content-Range header: {header[:80]!r}", "Content-Range")
    first = int(span[1]) if span is not None and span[1] is not None else None
    total = upload.size if span is None or span[3] == "*" else int(span[3])
    crc32c, md5 = resources.hash_header(request.headers.get("x-goog-hash", ""))
    async with open_uploads(request).of(upload_id) as incoming:
        if span is None or first is not None:
            await _take(
                request, incoming, first or 0, None if total is None or span is None else total
            )
        is_last = span is None or (total is not None and incoming.size == total)
        if not is_last:
            kept = incoming.size - incoming.size % PART_BYTES
            return Response(
                status_code=RESUME_STATUS, headers={"Range": f"bytes=0-{kept - 1}"} if kept else {}
            )
        uploads.check_digests(incoming.content(), crc32c, md5)
        content: Content = await to_thread.run_sync(incoming.store)
    unit = partial(uploads.finish, principal=caller, upload_id=upload_id, content=content)
    return await write_async(request, unit)


async def _take(request: Request, incoming: Incoming, first: int, total: int | None) -> None:
    """The bytes of a part from `first` on. Those that have come already are passed over."""
    if first > incoming.size:
        text = (
            f"Invalid request. The part begins at byte {first}, but only {incoming.size} "
            "bytes have come"
        )
        raise invalid(text, "Content-Range")
    over = incoming.size - first

    async def rest() -> AsyncIterator[bytes]:
        nonlocal over
        room = None if total is None else total - incoming.size
        async for piece in bodies.pieces(request):
            passed = min(over, len(piece))
            over -= passed
            if passed < len(piece):
                if room is not None and len(piece) - passed > room:
                    raise invalid(
                        f"more bytes have come than the {total} of the Content-Range",
                        "Content-Range",
                    )
                room = None if room is None else room - (len(piece) - passed)
                yield piece[passed:]

    await bodies.write(incoming, rest())


async def in_parts(request: Request, _bucket: str) -> Response:
    """PUT, POST or DELETE upload/storage/v1/b/BUCKET/o?upload_id="""
    upload_id = request.query_params["upload_id"]
    if request.method == "DELETE":
        await cancel(request, upload_id)
        return Response(status_code=CANCELLED_STATUS)
    found = await proceed(request, upload_id)
    return found if isinstance(found, Response) else _make(request, found)


async def cancel(request: Request, upload_id: str) -> None:
    await write_async(
        request, partial(uploads.cancel, principal=principal(request), upload_id=upload_id)
    )
    async with open_uploads(request).of(upload_id) as incoming:
        incoming.discard()
