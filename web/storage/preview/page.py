"""The page of one object: its facts, and what can be shown of it."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.contents import Contents
from podyard.base.errors import not_found
from podyard.control.storage import buckets, objects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.stored import StoredObject
from podyard.http import context
from podyard.web.kit.commands import Command, line
from podyard.web.kit.render import NOT_KEPT, ConsoleRoute, page, project_url
from podyard.web.storage.preview.content import (
    IMAGE_BYTES_MAX,
    JSON_BYTES_MAX,
    image_type,
    preview_of,
)

router = APIRouter(prefix="/console/{project}/settings/storage/{bucket}", route_class=ConsoleRoute)


@router.get("/object")
def show(request: Request, project: str, bucket: str) -> Response:
    stored = _find_object(request, project, bucket)
    start = _read(request, stored, JSON_BYTES_MAX)
    url = project_url(project, "settings", "storage", bucket)
    query, address = urlencode({"name": stored.name}), f"gs://{bucket}/{stored.name}"
    return page(
        request,
        "preview/page.html",
        section="settings",
        wide=True,
        project=project,
        bucket=bucket,
        stored=stored,
        preview=preview_of(stored.name, stored.size, start),
        url=url,
        folder=stored.name.rpartition("/")[0],
        image_url=f"{url}/image?{query}",
        download_url=f"{url}/download?{query}",
        commands=[Command("podyard", line(["podyard", "storage", "cp", address, "."], [], []))],
    )


@router.get("/image")
def image(request: Request, project: str, bucket: str) -> Response:
    """The content of an image, with the type that its first bytes say, never the writer's. It is
    shown in a page of ours only, and runs nothing when it is opened alone."""
    stored = _find_object(request, project, bucket)
    content = _read(request, stored, IMAGE_BYTES_MAX)
    kind = image_type(content)
    if kind is None or stored.size > IMAGE_BYTES_MAX:
        raise not_found(f"buckets/{bucket}/objects/{stored.name}")
    headers = {**NOT_KEPT, "Content-Security-Policy": "default-src 'none'; sandbox"}
    return Response(content, media_type=kind, headers=headers)


def _find_object(request: Request, project: str, bucket: str) -> StoredObject:
    """Raises NOT_FOUND, also for a bucket of another project."""
    caller, name = context.principal(request), request.query_params.get("name", "")

    def body(uow: UnitOfWork) -> StoredObject:
        if buckets.get(uow, caller, bucket, "storage.objects.get").project != project:
            raise not_found(f"buckets/{bucket}")
        return objects.find(uow, caller, bucket, name)

    return context.read(request, body)


def _read(request: Request, stored: StoredObject, most: int) -> bytes:
    path = Contents(context.platform(request).settings.contents_path).path(stored.digest)
    with path.open("rb") as file:
        return file.read(most)
