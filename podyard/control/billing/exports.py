"""Exports of what was billed: small ones at once, large ones in the background, with progress and a
file as result.

A worker claims an export (`db/store/claims.py`), reports every few thousand rows how far it is,
and names the file in one last unit, unless another worker has claimed the export since. A worker
that dies is followed by another one, which starts again and writes the same bytes: an open month is
exported as of the time of the request, unless it has been issued since. Progress never goes back:
`rows_done` is that of the furthest try.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from podyard.base.errors import (
    Code,
    PodyardError,
    failed_precondition,
    invalid,
    invalid_field,
    not_found,
)
from podyard.base.ids import row_id
from podyard.control.billing import accounts, export_source
from podyard.db.billing import exports
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.export import Export
from podyard.domain.principal import Principal
from podyard.pricing.export import ExportSource, rows
from podyard.pricing.export_bigquery import as_bigquery
from podyard.pricing.export_focus import as_focus
from podyard.pricing.export_slices import GRANULARITIES
from podyard.pricing.export_table import Exported, as_csv, as_json
from podyard.pricing.sku import RateCard

TASK = "podyard.make_export"
SMALL_ROWS_MAX = 20_000  # that are answered at once: a second of work and 10 MB
MONTHS_MAX = 120  # of one export: ten years
OPEN_MAX = 10  # exports of a project that are not done: each takes a worker for seconds to minutes
KEPT_MAX = 100  # exports of a project: an older one that has ended gives way to a new one
# a month's bill is computed within that; then every few thousand rows renew the claim
CLAIM_SECONDS = 60.0
TRIES_MAX = 5  # workers that die of the same export
ERROR_LENGTH_MAX = 2000
_CLAIMS = exports.claims(TASK, CLAIM_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """The file format of an export: `encode` makes a file of months."""

    name: str
    media_type: str
    extension: str
    encode: Callable[[Iterable[Exported]], Iterator[bytes]]


FORMATS: Mapping[str, Format] = {
    found.name: found
    for found in (
        Format("csv", "text/csv", "csv", as_csv),
        Format("json", "application/json", "json", as_json),
        Format("focus", "text/csv", "focus.csv", as_focus),
        Format("bigquery", "application/x-ndjson", "jsonl", as_bigquery),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class ExportRequest:
    """The export that is asked for: months, both included, in a format, by `day` or `hour`;
    `by_job`: a row for each job."""

    format: str
    from_month: str
    until_month: str
    granularity: str = "day"
    by_job: bool = False

    def check(self) -> None:
        """Raises INVALID_ARGUMENT that names the field."""
        format_of(self.format)
        if self.granularity not in GRANULARITIES:
            known = ", ".join(GRANULARITIES)
            raise invalid(
                f"unknown granularity {self.granularity[:20]!r}: use {known}", "granularity"
            )
        accounts.check_month(self.from_month, "from_month")
        accounts.check_month(self.until_month, "until_month")
        count = months.index_of(self.until_month) - months.index_of(self.from_month) + 1
        if not 1 <= count <= MONTHS_MAX:
            raise invalid_field(
                f"from {self.from_month} until {self.until_month}: an export must cover 1 to "
                f"{MONTHS_MAX} months",
                "until_month",
            )


def object_name_of(export: Export) -> str:
    """Each try has a separate file."""
    return (
        f"{folder_of(export.project)}/{export.export_id}-"
        f"{export.fence}.{format_of(export.format).extension}"
    )


def folder_of(project: str) -> str:
    return f"exports/{project}"


def format_of(name: str) -> Format:
    if name not in FORMATS:
        raise invalid(f"unknown format {name[:20]!r}: use {', '.join(FORMATS)}", "format")
    return FORMATS[name]


def one_month(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, request: ExportRequest
) -> ExportSource:
    """A month to export at once. Raises NOT_FOUND where there is nothing to invoice in it."""
    accounts.require_to_view(uow, principal, project, f"invoices/{request.from_month}")
    request.check()
    found = export_source.source(uow, card, project, request.from_month, by_job=request.by_job)
    if found is None:
        raise not_found(f"projects/{project}/invoices/{request.from_month}")
    return found


def small_file(found: ExportSource, request: ExportRequest) -> bytes:
    """The file of one month. Raises FAILED_PRECONDITION for one that has to be made in the
    background."""
    made = list(itertools.islice(rows(found, request.granularity), SMALL_ROWS_MAX + 1))
    if len(made) > SMALL_ROWS_MAX:
        raise failed_precondition(
            f"{request.from_month} has more than {SMALL_ROWS_MAX} rows: create an export instead "
            "(POST .../exports)"
        )
    return b"".join(format_of(request.format).encode([(found, made)]))


def create(uow: UnitOfWork, principal: Principal, project: str, request: ExportRequest) -> Export:
    """Asks for an export. Raises RESOURCE_EXHAUSTED when as many as there may be are under way."""
    accounts.require_to_view(uow, principal, project, "exports")
    request.check()
    last = accounts.of(uow, project).month_of(uow.now)
    if request.until_month > last:
        raise invalid_field(
            f"untilMonth is {request.until_month}: it must not be after the current month {last}",
            "until_month",
        )
    there = exports.of_project(uow, project)
    ended = [one for one in there if one.ended is not None]
    if len(there) - len(ended) >= OPEN_MAX:
        raise PodyardError(
            Code.RESOURCE_EXHAUSTED,
            f"project {project} already has {OPEN_MAX} unfinished exports: wait until one is done",
        )
    for one in ended[KEPT_MAX - 1 :]:
        exports.remove(uow, one.export_id)
    asked = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    export_id = row_id(uow.streams.stream("exports"), "export")
    _CLAIMS.ask(uow, Export(export_id, project, **asked, created=uow.now))
    return _find(uow, project, export_id)


def get(uow: UnitOfWork, principal: Principal, project: str, export_id: str) -> Export:
    accounts.require_to_view(uow, principal, project, f"exports/{export_id}")
    return _find(uow, project, export_id)


def list_exports(uow: UnitOfWork, principal: Principal, project: str) -> list[Export]:
    """The newest first; no more than are kept."""
    accounts.require_to_view(uow, principal, project, "exports")
    return exports.of_project(uow, project)


def result(uow: UnitOfWork, principal: Principal, project: str, export_id: str) -> Export:
    """An export that has a file. Raises FAILED_PRECONDITION while it has none, or why it failed."""
    found = get(uow, principal, project, export_id)
    if found.object_name is None:
        why = (
            found.error_message
            or f"it is not done: {found.rows_done} rows of {found.rows_all or 'many'}"
        )
        raise failed_precondition(f"export {export_id} has no file: {why}")
    return found


def claim(uow: UnitOfWork, export_id: str) -> Export | None:
    """Takes the next try; None when there is none, or another worker is at it. An export that so
    many workers have died of has failed."""
    found = _CLAIMS.due(uow, export_id)
    if found is None:
        return None
    if found.tries >= TRIES_MAX:
        _fail(uow, found, Code.ABORTED, f"{TRIES_MAX} workers have not come to its end")
        return None
    return _CLAIMS.take(uow, found)


def month_of(uow: UnitOfWork, card: RateCard, claimed: Export, month: str) -> ExportSource | None:
    """A month of a claimed export, as of the moment at which it was asked for. None: nothing was
    used in it."""
    return export_source.source(
        uow.at(claimed.created), card, claimed.project, month, by_job=claimed.by_job
    )


def progress(uow: UnitOfWork, claimed: Export, rows_done: int, rows_all: int | None) -> bool:
    """Says how far it is (`rows_all` None: they are being counted), and renews the claim; False
    when the fence is another one's by now."""
    found = _find_held(uow, claimed)
    if found is not None:
        done = max(rows_done, found.rows_done)
        _CLAIMS.renew(uow, found, dataclasses.replace(found, rows_done=done, rows_all=rows_all))
    return found is not None


def finish(uow: UnitOfWork, claimed: Export, rows_done: int, size: int, sha256: str) -> bool:
    """Names the file; False, and nothing is written, when another try has been claimed since."""
    found = _find_held(uow, claimed)
    if found is None:
        return False
    ended = dataclasses.replace(
        found,
        ended=uow.now,
        rows_done=rows_done,
        rows_all=rows_done,
        object_name=object_name_of(claimed),
        bytes=size,
        sha256=sha256,
    )
    _CLAIMS.end(uow, found, ended)
    return True


def fail(uow: UnitOfWork, claimed: Export, error: PodyardError) -> None:
    """It cannot be made: the same would come of another try."""
    found = _find_held(uow, claimed)
    if found is not None:
        _fail(uow, found, error.code, error.message[:ERROR_LENGTH_MAX])


def stale_files(uow: UnitOfWork, project: str, names: Iterable[str]) -> list[str]:
    """Return which of these names of files are of exports that have given way, or of tries that
    died or came too late."""
    there = {one.export_id: one for one in exports.of_project(uow, project)}
    found = []
    for name in names:
        export = there.get(name.rpartition("/")[2].lstrip(".").rpartition("-")[0])
        if export is None or (export.ended is not None and export.object_name != name):
            found.append(name)
    return found


def send_again(uow: UnitOfWork) -> None:
    _CLAIMS.send_again(uow)


def _find_held(uow: UnitOfWork, claimed: Export) -> Export | None:
    return _CLAIMS.find_held(uow, claimed.export_id, claimed.fence)


def _fail(uow: UnitOfWork, found: Export, code: Code, message: str) -> None:
    _CLAIMS.end(
        uow,
        found,
        dataclasses.replace(found, ended=uow.now, error_code=int(code), error_message=message),
    )


def _find(uow: UnitOfWork, project: str, export_id: str) -> Export:
    found = exports.find(uow, project, export_id)
    if found is None:
        raise not_found(f"projects/{project}/exports/{export_id}")
    return found
