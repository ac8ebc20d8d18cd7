"""Buckets of a project: the list, the form that creates one, and deletion of empty ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.control.storage import buckets
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.stored import (
    DEFAULT_LOCATION,
    DEFAULT_STORAGE_CLASS,
    STORAGE_CLASSES,
    Bucket,
    Preconditions,
)
from podyard.http import context
from podyard.web.kit import forms
from podyard.web.kit.commands import EXPORTS, Command
from podyard.web.kit.render import ConsoleRoute, change, form_of, page, project_url

router = APIRouter(prefix="/console/{project}/settings/storage", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    return _page(request, project, {}, None)


@router.post("")
async def create(request: Request, project: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _create(request, project, fields))


@router.post("/{name}/delete")
async def delete(request: Request, project: str, name: str) -> Response:
    await form_of(request)
    caller = context.principal(request)

    def body(uow: UnitOfWork) -> None:
        buckets.delete(uow, caller, name, Preconditions())

    return await context.in_thread(
        lambda: _change(request, project, body, {}, f"Bucket {name} is deleted.")
    )


def _create(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, name = context.principal(request), fields.get("name", "").strip()
    place = fields.get("location", "").strip() or DEFAULT_LOCATION
    kind = fields.get("storage_class", "") or DEFAULT_STORAGE_CLASS

    def body(uow: UnitOfWork) -> None:
        buckets.create(
            uow, caller, project, name, place, kind, forms.pairs(fields.get("labels", ""))
        )

    return _change(request, project, body, fields, f"Bucket {name} is created.")


def _change(
    request: Request,
    project: str,
    body: Callable[[UnitOfWork], None],
    fields: Mapping[str, str],
    notice: str,
) -> Response:
    url = project_url(project, "settings", "storage")
    return change(request, body, url, notice, lambda error: _page(request, project, fields, error))


def _page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    caller = context.principal(request)

    def body(uow: UnitOfWork) -> list[Bucket]:
        identity.project_row(uow, project)
        return buckets.list_buckets(uow, caller, project)

    return page(
        request,
        "storage.html",
        status=200 if error is None else error.code.http_status,
        section="settings",
        project=project,
        rows=context.read(request, body),
        classes=STORAGE_CLASSES,
        default_class=DEFAULT_STORAGE_CLASS,
        default_location=DEFAULT_LOCATION,
        fields=fields,
        may_create=caller.may("storage.buckets.create", project),
        may_delete=caller.may("storage.buckets.delete", project),
        url=project_url(project, "settings", "storage"),
        error=error.message if error else None,
        commands=[
            Command("gcloud", f"{EXPORTS}\ngcloud storage ls\ngcloud storage cp FILE gs://BUCKET/")
        ],
    )
