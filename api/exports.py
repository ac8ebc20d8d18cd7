"""Podyard's own REST for exports of what was billed: of one month at once, or in the background as
an operation."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Request, Response
from pydantic import StrictBool, StrictStr
from starlette.responses import FileResponse
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.errors import Code, invalid
from podyard.control.billing import exports
from podyard.domain.export import Export
from podyard.http.objects import ObjectFiles
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.export_slices import GRANULARITIES

router = APIRouter(prefix="/podyard/v1/projects/{project}", route_class=deps.Route)

CHUNK_BYTES = 256 * 1024  # of a file that are in memory at a time, whatever its size

FORMAT: deps.Query = {
    "name": "format",
    "description": "How the file is written.",
    "schema": {"type": "string", "enum": list(exports.FORMATS)},
    "required": True,
}
GRANULARITY: deps.Query = {
    "name": "granularity",
    "description": "A row for each day or each hour; by day when it is left out.",
    "schema": {"type": "string", "enum": list(GRANULARITIES)},
}
BY_JOB: deps.Query = {
    "name": "byJob",
    "description": "A row for each job, and one for idle time.",
    "schema": {"type": "boolean"},
}
_MEDIA: dict[str, Any] = {found.media_type: {"schema": {}} for found in exports.FORMATS.values()}
_FILE: dict[int | str, dict[str, Any]] = {200: {"description": "The file.", "content": _MEDIA}}


class ExportMessage(deps.Asked):
    """`month`, or `fromMonth` and `untilMonth`, both included."""

    format: StrictStr
    month: StrictStr | None = None
    from_month: StrictStr | None = None
    until_month: StrictStr | None = None
    granularity: StrictStr = "day"
    by_job: StrictBool = False

    def request(self) -> exports.ExportRequest:
        """Raises INVALID_ARGUMENT when it does not say which months."""
        first = self.month if self.month is not None else self.from_month
        last = self.month if self.month is not None else self.until_month
        both = self.month is not None and (
            self.from_month is not None or self.until_month is not None
        )
        if first is None or last is None or both:
            raise invalid("specify either month, or fromMonth and untilMonth", "month")
        return exports.ExportRequest(self.format, first, last, self.granularity, self.by_job)


class ExportState(TypedDict):
    """The state of an export; `rowsAll` once they are counted. `tries`: workers that have begun
    it."""

    format: str
    fromMonth: str
    untilMonth: str
    granularity: str
    byJob: bool
    createTime: Timestamp
    rowsDone: int
    rowsAll: NotRequired[int]
    tries: int
    endTime: NotRequired[Timestamp]


class ExportFile(TypedDict):
    """`sha256` is of the file's bytes."""

    bytes: int
    sha256: str
    mediaType: str
    fileName: str


class ExportError(TypedDict):
    code: int
    message: str
    status: str


class ExportAnswer(TypedDict):
    """A long-running operation: once it is done it has a response or an error."""

    name: str
    done: bool
    metadata: ExportState
    response: NotRequired[ExportFile]
    error: NotRequired[ExportError]


class ExportList(TypedDict):
    exports: list[ExportAnswer]


@router.get(
    "/invoices/{month}:export",
    openapi_extra=deps.asks(FORMAT, GRANULARITY, BY_JOB),
    responses=_FILE,
)
def export_month(request: Request, project: str, month: str) -> Response:
    """Return what the invoice of a month is made of, issued or so far. One with very many rows has
    to be made in the background."""
    caller, query = deps.principal(request), request.query_params
    caller.require("podyard.billing.view", project, f"projects/{project}/invoices/{month}")
    by_job = query.get("byJob", "false")
    if by_job not in ("true", "false"):
        raise invalid(f"byJob must be true or false, got {by_job[:20]!r}", "byJob")
    if "format" not in query:
        raise invalid(f"format is required: use {', '.join(exports.FORMATS)}", "format")
    wanted = exports.ExportRequest(
        query["format"], month, month, query.get("granularity", "day"), by_job == "true"
    )
    source = deps.read(
        request, lambda uow: exports.one_month(uow, default_rate_card(), caller, project, wanted)
    )
    return _file(exports.small_file(source, wanted), wanted.format, f"{project}-{month}")


@router.get("/exports")
def list_exports(request: Request, project: str) -> ExportList:
    """The newest first."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: exports.list_exports(uow, caller, project))
    return {"exports": [_answer(export) for export in found]}


@router.post("/exports", responses=deps.errors(429))
def create(
    request: Request, project: str, body: Annotated[deps.Body, ExportMessage]
) -> ExportAnswer:
    """Begins an export of one month or several. Months that are open are exported as of now."""
    caller = deps.principal(request)
    caller.require("podyard.billing.view", project, f"projects/{project}/exports")
    wanted = deps.parse(ExportMessage, body).request()
    return _answer(deps.write(request, lambda uow: exports.create(uow, caller, project, wanted)))


@router.get("/exports/{export}:download", responses=_FILE)
def download(request: Request, project: str, export: str) -> Response:
    """The file of an export that is done; with a Range header, a part of it. The ETag is its
    SHA-256."""
    caller, objects = (
        deps.principal(request),
        ObjectFiles(deps.platform(request).settings.objects_path),
    )
    found = deps.read(request, lambda uow: exports.result(uow, caller, project, export))
    headers = {**_headers(found.format, _stem(found)), "ETag": f'"{found.sha256}"'}
    media_type = exports.format_of(found.format).media_type
    path = objects.path(found.object_name or "")
    return _FileInChunks(path, headers=headers, media_type=media_type, stat_result=path.stat())


class _FileInChunks(FileResponse):
    chunk_size = CHUNK_BYTES
    max_ranges = 1  # who asks for several parts gets the whole file


@router.get("/exports/{export}")
def get(request: Request, project: str, export: str) -> ExportAnswer:
    caller = deps.principal(request)
    return _answer(deps.read(request, lambda uow: exports.get(uow, caller, project, export)))


def _file(data: bytes, name: str, stem: str) -> Response:
    return Response(
        data, media_type=exports.format_of(name).media_type, headers=_headers(name, stem)
    )


def _headers(name: str, stem: str) -> dict[str, str]:
    # A browser must not render it: names and labels in it are other users' text.
    return {
        "Content-Disposition": f'attachment; filename="{stem}.{exports.format_of(name).extension}"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def _stem(export: Export) -> str:
    several = "" if export.from_month == export.until_month else f"-{export.until_month}"
    return f"{export.project}-{export.from_month}{several}"


def _answer(export: Export) -> ExportAnswer:
    state: ExportState = {
        "format": export.format,
        "fromMonth": export.from_month,
        "untilMonth": export.until_month,
        "granularity": export.granularity,
        "byJob": export.by_job,
        "createTime": export.created.rfc3339(),
        "rowsDone": export.rows_done,
        "tries": export.tries,
    }
    if export.rows_all is not None:
        state["rowsAll"] = export.rows_all
    if export.ended is not None:
        state["endTime"] = export.ended.rfc3339()
    answer: ExportAnswer = {
        "name": f"projects/{export.project}/exports/{export.export_id}",
        "done": export.ended is not None,
        "metadata": state,
    }
    if export.object_name is not None and export.bytes is not None and export.sha256 is not None:
        found = exports.format_of(export.format)
        answer["response"] = {
            "bytes": export.bytes,
            "sha256": export.sha256,
            "mediaType": found.media_type,
            "fileName": f"{_stem(export)}.{found.extension}",
        }
    elif export.error_code is not None:
        code = Code(export.error_code)
        answer["error"] = {
            "code": int(code),
            "message": export.error_message or "",
            "status": code.name,
        }
    return answer
