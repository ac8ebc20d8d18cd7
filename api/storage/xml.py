"""The XML API: what TensorFlow reads by, and what clients of S3's form use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import Response

from podyard.api.storage import bodies, media, multipart, objects, resources, uploads
from podyard.api.storage.answers import caller_project, number, own_address, quote_name, segments
from podyard.api.storage.parts import contents, read, write_operations
from podyard.base.errors import Code, PodyardError
from podyard.control.storage import buckets, refusals
from podyard.control.storage import objects as use_cases
from podyard.domain.stored import Preconditions, StoredObject
from podyard.http.context import principal, write_async

HOST = "storage.googleapis.com"
HOSTS = frozenset({HOST, "www.googleapis.com"})  # as a proxy passes them on
_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
_LIST_MAX = 1000


async def handle(request: Request) -> Response:
    bucket, *rest = segments(request)
    name = "/".join(rest)
    method = request.method
    if not bucket and not name and method == "GET":
        return await _list_buckets(request)
    if bucket and not name:
        if method == "GET":
            return await _list(request, bucket)
        if method in ("PUT", "HEAD", "DELETE"):
            return await _bucket(request, method, bucket)
    elif bucket and "upload_id" in request.query_params and method in ("PUT", "POST", "DELETE"):
        return await _part(request, method)
    elif bucket and "uploadId" in request.query_params and method in ("PUT", "POST", "DELETE"):
        return await _multipart(request, method, request.query_params["uploadId"])
    elif bucket and method in ("GET", "HEAD"):
        return await _get(request, bucket, name)
    elif bucket and method in ("PUT", "POST", "DELETE"):
        return await {"PUT": _put, "POST": _begin, "DELETE": _delete}[method](request, bucket, name)
    raise PodyardError(
        Code.UNIMPLEMENTED, f"{method} {request.scope['path']} is not supported by the XML API here"
    )


async def _get(request: Request, bucket: str, name: str) -> Response:
    stored = await read(
        request, partial(use_cases.find, principal=principal(request), bucket=bucket, name=name)
    )
    generation = request.query_params.get("generation")
    if generation is not None and number(generation, "generation") != stored.generation:
        raise refusals.object_not_found(bucket, f"{name}#{generation}")
    objects.check_read(stored, _preconditions(request))
    tag = f'"{stored.md5}"'
    if (wanted := request.headers.get("if-match")) not in (None, "*", tag):
        raise refusals.condition_not_met()
    if wanted is None and stored.md5 and request.headers.get("if-none-match") in ("*", tag):
        raise refusals.not_modified()
    return media.respond(request, stored, contents(request), quoted_etag=True)


def _preconditions(request: Request) -> Preconditions:
    def of(name: str) -> int | None:
        text = request.headers.get(f"x-goog-if-{name}-match")
        return None if text is None else number(text, f"x-goog-if-{name}-match")

    return Preconditions(generation=of("generation"), metageneration=of("metageneration"))


def _announce(request: Request, bucket: str, name: str) -> uploads.Announced:
    headers = request.headers
    said: dict[str, Any] = {
        field: headers[header]
        for field, header in (
            ("contentType", "content-type"),
            ("contentEncoding", "content-encoding"),
            ("contentDisposition", "content-disposition"),
            ("contentLanguage", "content-language"),
            ("cacheControl", "cache-control"),
            ("storageClass", "x-goog-storage-class"),
            ("customTime", "x-goog-custom-time"),
        )
        if header in headers
    }
    prefix = "x-goog-meta-"
    metadata = {
        key.removeprefix(prefix): value for key, value in headers.items() if key.startswith(prefix)
    }
    crc32c, md5 = resources.hash_header(headers.get("x-goog-hash", ""))
    if "content-md5" in headers:
        md5 = resources.read_md5(headers["content-md5"])
    fields = resources.object_fields({**said, "metadata": metadata})
    return uploads.Announced(bucket, name, fields, _preconditions(request), crc32c, md5)


async def _put(request: Request, bucket: str, name: str) -> Response:
    announced = _announce(request, bucket, name)
    copied = request.headers.get("x-goog-copy-source") or request.headers.get("x-amz-copy-source")
    if copied is not None:
        return await _copy(request, copied, announced)
    return _make(await uploads.receive(request, announced, bodies.pieces(request)))


async def _copy(request: Request, copied: str, announced: uploads.Announced) -> Response:
    source, _, name = unquote(copied).removeprefix("/").partition("/")
    replaces = request.headers.get("x-goog-metadata-directive", "COPY").upper() == "REPLACE"
    body: Mapping[str, Any] = {}
    if replaces:
        body = {"contentType": announced.fields.content_type, "metadata": announced.fields.metadata}
    target = (announced.bucket, announced.name)
    copying = objects.Copying((source, name), target, body, Preconditions(), announced.when)
    stored = await write_async(request, partial(copying.run, principal=principal(request)))
    text = (
        f"<ETag>&quot;{stored.md5}&quot;</ETag><LastModified>{stored.updated.rfc3339()}</"
        "LastModified>"
    )
    return _xml(f"<CopyObjectResult>{text}</CopyObjectResult>")


def _make(stored: StoredObject) -> Response:
    found = media.headers(stored, quoted_etag=True)
    kept = (
        "ETag",
        "X-Goog-Generation",
        "X-Goog-Metageneration",
        "X-Goog-Hash",
        "X-Goog-Stored-Content-Length",
    )
    return Response(headers={name: found[name] for name in kept})


async def _multipart(request: Request, method: str, upload_id: str) -> Response:
    if method == "PUT":
        return await multipart.put(request, upload_id)
    if method == "DELETE":
        await multipart.cancel(request, upload_id)
        return Response(status_code=204)
    stored = await multipart.complete(request, upload_id)
    text = (
        f"{_element('Bucket', stored.bucket)}{_element('Key', stored.name)}<ETag>&quot;"
        f"{stored.md5}&quot;</ETag>"
    )
    response = _xml(
        "<CompleteMultipartUploadResult "
        f"xmlns='{multipart.NAMESPACE}'>{text}</CompleteMultipartUploadResult>"
    )
    response.headers.update(
        {name: _make(stored).headers[name] for name in ("ETag", "X-Goog-Generation", "X-Goog-Hash")}
    )
    return response


async def _begin(request: Request, bucket: str, name: str) -> Response:
    if "uploads" in request.query_params:
        return _xml(await multipart.begin(request, _announce(request, bucket, name)))
    if request.headers.get("x-goog-resumable", "").lower() != "start":
        raise PodyardError(
            Code.UNIMPLEMENTED,
            "only uploads in parts (x-goog-resumable: start) are posted to objects",
        )
    upload = await uploads.begin(request, _announce(request, bucket, name), None)
    place = (
        f"{own_address(request)}/{quote_name(bucket)}/{quote_name(name)}?upload_id="
        f"{upload.upload_id}"
    )
    return Response(
        status_code=201, headers={"Location": place, "X-GUploader-UploadID": upload.upload_id}
    )


async def _part(request: Request, method: str) -> Response:
    upload_id = request.query_params["upload_id"]
    if method == "DELETE":
        await uploads.cancel(request, upload_id)
        return Response(status_code=204)
    found = await uploads.proceed(request, upload_id)
    return found if isinstance(found, Response) else _make(found)


async def _delete(request: Request, bucket: str, name: str) -> Response:
    when = _preconditions(request)
    unit = partial(
        use_cases.delete, principal=principal(request), bucket=bucket, name=name, when=when
    )
    await write_async(request, unit)
    return Response(status_code=204)


async def _bucket(request: Request, method: str, name: str) -> Response:
    caller = principal(request)
    if method == "HEAD":
        await read(request, partial(buckets.get, principal=caller, name=name))
        return Response()
    if method == "DELETE":
        await write_operations(request)
        await write_async(
            request, partial(buckets.delete, principal=caller, name=name, when=Preconditions())
        )
        return Response(status_code=204)
    project = caller_project(request)
    await write_async(
        request, partial(buckets.create, principal=caller, project=project, name=name)
    )
    return Response()


async def _list(request: Request, bucket: str) -> Response:
    query = request.query_params
    is_second = query.get("list-type") == "2"
    after = query.get("start-after" if is_second else "marker", "")
    token = objects.page_start(query.get("continuation-token")) if is_second else ""
    most = min(number(query.get("max-keys", str(_LIST_MAX)), "max-keys") or _LIST_MAX, _LIST_MAX)
    page = await read(
        request,
        partial(
            use_cases.list_objects,
            principal=principal(request),
            bucket=bucket,
            most=most,
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=max(token, f"{after}\x01" if after else ""),
        ),
    )
    parts = [f"<Name>{escape(bucket)}</Name>", _element("Prefix", query.get("prefix", ""))]
    if query.get("delimiter"):
        parts.append(_element("Delimiter", query["delimiter"]))
    parts.append(f"<IsTruncated>{str(page.following is not None).lower()}</IsTruncated>")
    if page.following is not None:
        listed = [stored.name for stored in page.objects] + page.prefixes
        parts.append(
            _element("NextContinuationToken", objects.page_token(page.following))
            if is_second
            else _element("NextMarker", max(listed))
        )
    parts += [_list_answer(stored) for stored in page.objects]
    parts += [
        f"<CommonPrefixes>{_element('Prefix', prefix)}</CommonPrefixes>" for prefix in page.prefixes
    ]
    return _xml(f"<ListBucketResult xmlns='{_NAMESPACE}'>{''.join(parts)}</ListBucketResult>")


def _list_answer(stored: StoredObject) -> str:
    return (
        f"<Contents>{_element('Key', stored.name)}<Generation>{stored.generation}</Generation>"
        f"<MetaGeneration>{stored.metageneration}</MetaGeneration>"
        f"<LastModified>{stored.updated.rfc3339()}</LastModified><ETag>&quot;{stored.md5}&"
        "quot;</ETag>"
        f"<Size>{stored.size}</Size><StorageClass>{stored.fields.storage_class}</"
        "StorageClass></Contents>"
    )


async def _list_buckets(request: Request) -> Response:
    project = caller_project(request)
    found = await read(
        request, partial(buckets.list_buckets, principal=principal(request), project=project)
    )
    listed = "".join(
        f"<Bucket>{_element('Name', bucket.name)}<CreationDate>{bucket.created.rfc3339()}</"
        "CreationDate></Bucket>"
        for bucket in found
    )
    return _xml(
        "<ListAllMyBucketsResult "
        f"xmlns='{_NAMESPACE}'><Buckets>{listed}</Buckets></ListAllMyBucketsResult>"
    )


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"


def _xml(text: str) -> Response:
    content = f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode()
    return Response(content, media_type="application/xml; charset=UTF-8")
