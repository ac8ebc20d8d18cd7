"""Objects in the JSON API."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from podyard.api.storage import bodies, media, resources
from podyard.api.storage.answers import (
    answer,
    flag,
    number,
    own_address,
    preconditions,
    whole_number,
)
from podyard.api.storage.parts import contents, read
from podyard.base.contents import Contents, Incoming
from podyard.base.errors import invalid
from podyard.control.storage import objects, refusals
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.name_glob import name_matcher
from podyard.domain.principal import Principal
from podyard.domain.stored import (
    COMPOSE_SOURCES_MAX,
    OBJECT_BYTES_MAX,
    ObjectFields,
    Preconditions,
    StoredObject,
)
from podyard.http.context import principal, write_async

LIST_MAX = 1000  # of one page, as Cloud Storage's
_COPY_BYTES = 1 << 20


async def get(request: Request, bucket: str, name: str) -> Response:
    """Its description, or with alt=media its content. Raises FAILED_PRECONDITION as 412 or 304."""
    stored = await find(request, bucket, name)
    if request.query_params.get("alt") == "media":
        return media.respond(request, stored, contents(request), quoted_etag=False)
    return answer(resources.object_resource(stored, own_address(request)))


async def find(request: Request, bucket: str, name: str) -> StoredObject:
    """The live version, if it is the one that is asked for and the preconditions hold."""
    when, generation = preconditions(request), whole_number(request, "generation")
    stored = await read(
        request, partial(objects.find, principal=principal(request), bucket=bucket, name=name)
    )
    if generation not in (None, stored.generation):
        raise refusals.object_not_found(bucket, f"{name}#{generation}")
    check_read(stored, when)
    return stored


def check_read(stored: StoredObject, when: Preconditions) -> None:
    """Raises the error that is answered with 412, or with 304 where a version is not wanted
    again."""
    if when.is_met_by(stored):
        return
    wanted = dataclasses.replace(when, not_generation=None, not_metageneration=None)
    raise refusals.not_modified() if wanted.is_met_by(stored) else refusals.condition_not_met()


async def list_objects(request: Request, bucket: str) -> Response:
    query = request.query_params
    most = min(whole_number(request, "maxResults") or LIST_MAX, LIST_MAX)
    glob = query.get("matchGlob")
    if flag(request, "softDeleted"):
        return answer({"kind": "storage#objects"})
    page = await read(
        request,
        partial(
            objects.list_objects,
            principal=principal(request),
            bucket=bucket,
            most=most,
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=max(page_start(query.get("pageToken")), query.get("startOffset", "")),
            end=query.get("endOffset", ""),
            with_trailing_delimiter=flag(request, "includeTrailingDelimiter"),
            is_wanted=None if not glob else name_matcher(glob),
        ),
    )
    address = own_address(request)
    found: dict[str, Any] = {"kind": "storage#objects"}
    if page.following is not None:
        found["nextPageToken"] = page_token(page.following)
    if page.prefixes:
        found["prefixes"] = page.prefixes
    if page.objects:
        found["items"] = [resources.object_resource(stored, address) for stored in page.objects]
    return answer(found)


def page_token(following: str) -> str:
    return base64.urlsafe_b64encode(following.encode()).decode()


def page_start(token: str | None) -> str:
    try:
        return base64.b64decode((token or "").encode("ascii"), b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise invalid(
            "Invalid page token: use the nextPageToken of this list", "pageToken"
        ) from None


async def patch(request: Request, bucket: str, name: str) -> Response:
    """PATCH changes what it names; PUT replaces all."""
    body = await bodies.read_json(request)
    clears = request.method == "PUT"

    def change(before: ObjectFields) -> ObjectFields:
        return resources.object_fields(body, before, clears=clears)

    unit = partial(
        objects.patch,
        principal=principal(request),
        bucket=bucket,
        name=name,
        change=change,
        when=_of_version(request, preconditions(request)),
    )
    return answer(resources.object_resource(await write_async(request, unit), own_address(request)))


async def delete(request: Request, bucket: str, name: str) -> Response:
    when = _of_version(request, preconditions(request))
    unit = partial(
        objects.delete, principal=principal(request), bucket=bucket, name=name, when=when
    )
    await write_async(request, unit)
    return Response(status_code=204)


def _of_version(request: Request, when: Preconditions) -> Preconditions:
    """`generation=` names a version: here only the live one can be meant."""
    generation = whole_number(request, "generation")
    if generation is None or when.generation is not None:
        return when
    return dataclasses.replace(when, generation=generation)


@dataclasses.dataclass(frozen=True, slots=True)
class Copying:
    """One copy, and its messages: nothing, if it is to be like the source."""

    source: tuple[str, str]
    target: tuple[str, str]
    body: Mapping[str, Any]
    of_source: Preconditions
    when: Preconditions

    def run(self, uow: UnitOfWork, principal: Principal) -> StoredObject:
        found = objects.find(uow, principal, *self.source)
        if not self.of_source.is_met_by(found):
            raise refusals.condition_not_met()
        fields = resources.object_fields(self.body, found.fields, clears="contentType" in self.body)
        return objects.copy(uow, principal, found, *self.target, fields, self.when)

    def move(self, uow: UnitOfWork, principal: Principal) -> StoredObject:
        copied = self.run(uow, principal)
        if self.source != self.target:
            objects.delete(uow, principal, *self.source, Preconditions())
        return copied


async def _copying(request: Request, source: tuple[str, str], target: tuple[str, str]) -> Copying:
    of_source = preconditions(request, "Source")
    generation = whole_number(request, "sourceGeneration")
    if generation is not None and of_source.generation is None:
        of_source = dataclasses.replace(of_source, generation=generation)
    return Copying(
        source, target, await bodies.read_json(request), of_source, preconditions(request)
    )


async def copy(request: Request, source: tuple[str, str], target: tuple[str, str]) -> Response:
    copying = await _copying(request, source, target)
    stored = await write_async(request, partial(copying.run, principal=principal(request)))
    return answer(resources.object_resource(stored, own_address(request)))


async def rewrite(request: Request, source: tuple[str, str], target: tuple[str, str]) -> Response:
    """As a copy: contents are not moved, so that it is always done at once."""
    copying = await _copying(request, source, target)
    stored = await write_async(request, partial(copying.run, principal=principal(request)))
    return answer(
        {
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": str(stored.size),
            "objectSize": str(stored.size),
            "done": True,
            "resource": resources.object_resource(stored, own_address(request)),
        }
    )


async def move(request: Request, source: tuple[str, str], target: tuple[str, str]) -> Response:
    copying = await _copying(request, source, target)
    stored = await write_async(request, partial(copying.move, principal=principal(request)))
    return answer(resources.object_resource(stored, own_address(request)))


async def compose(request: Request, bucket: str, name: str) -> Response:
    """Joins objects of one bucket. Its content is another file, as long as all of them together."""
    body = await bodies.read_json(request)
    given = body.get("sourceObjects")
    if not isinstance(given, list) or not 1 <= len(given) <= COMPOSE_SOURCES_MAX:
        text = (
            f"The number of source components provided must be between 1 and {COMPOSE_SOURCES_MAX}"
        )
        raise invalid(text, "sourceObjects")
    wanted = [_source(one) for one in given]
    said = body.get("destination") or {}
    caller = principal(request)
    store = contents(request)

    def find_all(uow: UnitOfWork) -> list[StoredObject]:
        found = [objects.find(uow, caller, bucket, source) for source, _ in wanted]
        if not all(when.is_met_by(stored) for (_, when), stored in zip(wanted, found, strict=True)):
            raise refusals.condition_not_met()
        return found

    sources = await read(request, find_all)
    fields = resources.object_fields({"contentType": sources[0].fields.content_type, **said})
    count = sum(max(1, stored.component_count) for stored in sources)
    async with bodies.receiving(store, OBJECT_BYTES_MAX) as incoming:
        await to_thread.run_sync(_join, store, sources, incoming)
        content = await to_thread.run_sync(incoming.store)
    unit = partial(
        objects.put,
        principal=caller,
        bucket=bucket,
        name=name,
        content=content,
        fields=fields,
        when=preconditions(request),
        component_count=count,
    )
    return answer(resources.object_resource(await write_async(request, unit), own_address(request)))


def _source(given: object) -> tuple[str, Preconditions]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise invalid("Required: name of each source object", "sourceObjects")
    asked = given.get("objectPreconditions") or {}
    text = asked.get("ifGenerationMatch") if isinstance(asked, dict) else None
    generation = given.get("generation") if text is None else text
    return given["name"], Preconditions(
        None if generation is None else number(str(generation), "generation")
    )


def _join(store: Contents, sources: list[StoredObject], incoming: Incoming) -> None:
    for stored in sources:
        with store.path(stored.digest).open("rb", buffering=0) as file:
            while data := file.read(_COPY_BYTES):
                incoming.write(data)
