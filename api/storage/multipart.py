"""Multipart uploads of the XML API: parts that come in any order, joined at the end."""

from __future__ import annotations

import re
from functools import partial
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from podyard.api.storage import bodies, resources, uploads
from podyard.api.storage.answers import number
from podyard.api.storage.parts import contents, open_uploads, read
from podyard.base.contents import Contents, Incoming
from podyard.base.errors import Code, ErrorInfo, PodyardError, invalid
from podyard.control.storage import refusals
from podyard.control.storage import uploads as use_cases
from podyard.domain.stored import OBJECT_BYTES_MAX, StoredObject
from podyard.http.context import principal, write_async

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"  # Google's library reads these answers by it
PARTS_MAX = 10_000  # cloud.google.com/storage/quotas
_BODY_BYTES_MAX = 4 << 20  # PARTS_MAX parts with their ETags
_ENTITY = re.compile(rb"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)


async def begin(request: Request, announced: uploads.Announced) -> str:
    upload = await uploads.begin(request, announced, None)
    place = f"<Bucket>{escape(announced.bucket)}</Bucket><Key>{escape(announced.name)}</Key>"
    text = f"{place}<UploadId>{upload.upload_id}</UploadId>"
    return (
        f"<InitiateMultipartUploadResult xmlns='{NAMESPACE}'>{text}</InitiateMultipartUploadResult>"
    )


async def put(request: Request, upload_id: str) -> Response:
    """One part; one that comes again takes the place of the one before."""
    part = number(request.query_params.get("partNumber", ""), "partNumber")
    if not 1 <= part <= PARTS_MAX:
        raise invalid(f"partNumber must be between 1 and {PARTS_MAX}", "partNumber")
    await read(request, partial(use_cases.find, principal=principal(request), upload_id=upload_id))
    store = contents(request)
    async with bodies.receiving(store, OBJECT_BYTES_MAX) as incoming:
        await bodies.write(incoming, bodies.pieces(request))
        found = incoming.content()
        await to_thread.run_sync(incoming.suspend_as, f"{upload_id}.{part}")
    hashes = f"crc32c={resources.crc32c_text(found.crc32c)},md5={resources.md5_text(found.md5)}"
    return Response(headers={"ETag": f'"{found.md5}"', "X-Goog-Hash": hashes})


async def complete(request: Request, upload_id: str) -> StoredObject:
    body = bytearray()
    async for piece in bodies.pieces(request):
        body += piece
        if len(body) > _BODY_BYTES_MAX:
            raise invalid(f"the list of parts is larger than {_BODY_BYTES_MAX} bytes")
    wanted = _parts(bytes(body))
    caller = principal(request)
    _, stored = await read(request, partial(use_cases.find, principal=caller, upload_id=upload_id))
    if stored is not None:
        return stored
    async with open_uploads(request).of(upload_id) as incoming:
        try:
            await to_thread.run_sync(_join, contents(request), upload_id, wanted, incoming)
            content = await to_thread.run_sync(incoming.store)
        finally:
            incoming.discard()
    made = await write_async(
        request, partial(use_cases.finish, principal=caller, upload_id=upload_id, content=content)
    )
    await to_thread.run_sync(contents(request).discard_parts, upload_id)
    return made


async def cancel(request: Request, upload_id: str) -> None:
    await uploads.cancel(request, upload_id)
    await to_thread.run_sync(contents(request).discard_parts, upload_id)


def _parts(body: bytes) -> list[tuple[int, str]]:
    """(number, MD5) of each part that the client names, in order."""
    try:
        if _ENTITY.search(body):
            raise ElementTree.ParseError
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        raise invalid("the list of parts is not valid XML") from None
    found = []
    for part in root.iter():
        if part.tag.rpartition("}")[2] == "Part":
            values = {one.tag.rpartition("}")[2]: (one.text or "").strip() for one in part}
            found.append(
                (
                    number(values.get("PartNumber", ""), "PartNumber"),
                    values.get("ETag", "").strip('"'),
                )
            )
    if not found or found != sorted(found) or len(found) > PARTS_MAX:
        raise invalid(f"the list must name 1 to {PARTS_MAX} parts, in the order of their numbers")
    return found


def _join(
    store: Contents, upload_id: str, wanted: list[tuple[int, str]], incoming: Incoming
) -> None:
    for part, md5 in wanted:
        piece = store.resume(f"{upload_id}.{part}", OBJECT_BYTES_MAX)
        try:
            if not piece.size or piece.content().md5 != md5:
                reason = ErrorInfo(use_cases.DIGEST_MISMATCH, refusals.DOMAIN, {})
                raise PodyardError(
                    Code.INVALID_ARGUMENT,
                    f"part {part} is not what was uploaded: send it again",
                    [reason],
                )
            piece.copy_to(incoming)
        finally:
            piece.suspend()
