"""The objects of a bucket: by folders, 100 a page; upload, download, deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from podyard.base.contents import Contents
from podyard.base.errors import PodyardError, invalid, not_found
from podyard.control.storage import buckets, objects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.listing import ROWS_A_PAGE
from podyard.domain.stored import Bucket, Preconditions
from podyard.http import context
from podyard.http.incoming import pieces_of, receive
from podyard.web.kit.commands import EXPORTS, Command
from podyard.web.kit.render import ConsoleRoute, change, form_of, form_with_file, page, project_url

# as the source of a job; what is larger goes with `podyard storage cp`, in parts
UPLOAD_BYTES_MAX = 512 << 20

router = APIRouter(prefix="/console/{project}/settings/storage/{bucket}", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str, bucket: str) -> Response:
    return _page(request, project, bucket, request.query_params, None)


@router.get("/download")
def download(request: Request, project: str, bucket: str) -> Response:
    caller, name = context.principal(request), request.query_params.get("name", "")

    def body(uow: UnitOfWork) -> str:
        _bucket(uow, request, project, bucket)
        return objects.find(uow, caller, bucket, name).digest

    path = Contents(context.platform(request).settings.contents_path).path(
        context.read(request, body)
    )
    # Never shown as a page of this origin: what an object holds is its writer's.
    headers = {
        "Content-Disposition": (
            f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}"
        )
    }
    return FileResponse(path, media_type="application/octet-stream", headers=headers)


@router.post("/upload")
async def upload(request: Request, project: str, bucket: str) -> Response:
    fields, file = await form_with_file(request, "file")
    caller = context.principal(request)
    name = (
        fields.get("name", "").strip()
        or f"{fields.get('prefix', '')}{'' if file is None else file.filename or ''}"
    )
    try:
        if file is None:
            raise invalid("choose a file", "file")
        caller.require("storage.objects.create", project, f"buckets/{bucket}")
        contents = Contents(context.platform(request).settings.contents_path)
        await to_thread.run_sync(
            lambda: context.read(request, lambda uow: _bucket(uow, request, project, bucket))
        )
        content = await receive(contents, pieces_of(file), UPLOAD_BYTES_MAX)
    except PodyardError as error:
        refused = error
        return await context.in_thread(lambda: _page(request, project, bucket, fields, refused))

    def body(uow: UnitOfWork) -> None:
        objects.put(uow, caller, bucket, name, content)

    return await context.in_thread(
        lambda: _change(request, project, bucket, fields, body, f"{name} is uploaded.")
    )


@router.post("/remove")
async def remove(request: Request, project: str, bucket: str) -> Response:
    fields = await form_of(request)
    caller, name = context.principal(request), fields.get("name", "")

    def body(uow: UnitOfWork) -> None:
        _bucket(uow, request, project, bucket)
        objects.delete(uow, caller, bucket, name, Preconditions())

    return await context.in_thread(
        lambda: _change(request, project, bucket, fields, body, f"{name} is deleted.")
    )


def _change(
    request: Request,
    project: str,
    bucket: str,
    fields: Mapping[str, str],
    body: Callable[[UnitOfWork], None],
    notice: str,
) -> Response:
    url = _address(project, bucket, prefix=fields.get("prefix", ""))
    return change(
        request, body, url, notice, lambda error: _page(request, project, bucket, fields, error)
    )


def _bucket(uow: UnitOfWork, request: Request, project: str, bucket: str) -> Bucket:
    """Raises NOT_FOUND for one of another project: its name is in no address of this one."""
    found = buckets.get(uow, context.principal(request), bucket, "storage.objects.list")
    if found.project != project:
        raise not_found(f"buckets/{bucket}")
    return found


def _page(
    request: Request,
    project: str,
    bucket: str,
    asked: Mapping[str, str],
    error: PodyardError | None,
) -> Response:
    caller, prefix, start = (
        context.principal(request),
        asked.get("prefix", ""),
        asked.get("start", ""),
    )

    def body(uow: UnitOfWork) -> objects.ObjectPage:
        _bucket(uow, request, project, bucket)
        return objects.list_objects(
            uow, caller, bucket, ROWS_A_PAGE, prefix=prefix, delimiter="/", start=start
        )

    found = context.read(request, body)
    parts = prefix.split("/")[:-1]
    above = [f"{'/'.join(parts[: index + 1])}/" for index in range(len(parts))]
    return page(
        request,
        "storage_objects.html",
        status=200 if error is None else error.code.http_status,
        section="settings",
        wide=True,
        project=project,
        bucket=bucket,
        prefix=prefix,
        above=[
            (part, _address(project, bucket, prefix=at))
            for part, at in zip(parts, above, strict=True)
        ],
        folders=[
            (name[len(prefix) :], _address(project, bucket, prefix=name)) for name in found.prefixes
        ],
        rows=[
            (one, one.name[len(prefix) :], _object(project, bucket, one.name))
            for one in found.objects
        ],
        following=found.following
        and _address(project, bucket, prefix=prefix, start=found.following),
        may_write=caller.may("storage.objects.create", project),
        may_delete=caller.may("storage.objects.delete", project),
        url=_address(project, bucket),
        error=error.message if error else None,
        commands=[
            Command(
                "podyard",
                f"podyard storage ls -l gs://{bucket}/{prefix}\npodyard storage cp FILE "
                f"gs://{bucket}/{prefix}",
            ),
            Command("gcloud", f"{EXPORTS}\ngcloud storage cp FILE gs://{bucket}/{prefix}"),
        ],
    )


def _address(project: str, bucket: str, **asked: str) -> str:
    query = urlencode({name: value for name, value in asked.items() if value})
    return project_url(project, "settings", "storage", bucket) + (f"?{query}" if query else "")


def _object(project: str, bucket: str, name: str) -> str:
    return (
        f"{project_url(project, 'settings', 'storage', bucket, 'object')}?"
        f"{urlencode({'name': name})}"
    )
