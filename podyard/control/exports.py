"""Exports of what was billed: small ones at once, large ones in the background, with progress and a file as result.

A worker claims an export (`db/claims.py`), says every few thousand rows how far it is, and names the file that it has
written in one last unit, unless somebody else has claimed the export since. A worker that dies is followed by another
one, which begins anew and writes the same bytes: a month that was open is exported as of the moment at which the export
was asked for, unless it has been issued since. What was said of the progress stands: the rows that were counted, and
how far the furthest try has come.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, select

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid, not_found
from podyard.base.ids import row_id
from podyard.control import access, accounts, export_source
from podyard.db.claims import Claims
from podyard.db.tables_exports import exports
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.principal import Principal
from podyard.pricing.export import Source, rows
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
CLAIM_SECONDS = 60.0  # a month's bill is computed within that; then every few thousand rows renew the claim
TRIES_MAX = 5  # workers that die of the same export
ERROR_LENGTH_MAX = 2000
_CLAIMS = Claims(exports, TASK, CLAIM_SECONDS)

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """How an export is written: `encode` makes a file of months."""

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
class Request:
    """What is wanted: months, both included, in a format, by `day` or `hour`; `by_job`: a row for each job."""

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
            raise invalid(f"granularity {self.granularity[:20]!r} is none of {known}", "granularity")
        accounts.check_month(self.from_month, "fromMonth")
        accounts.check_month(self.until_month, "untilMonth")
        count = months.index_of(self.until_month) - months.index_of(self.from_month) + 1
        if not 1 <= count <= MONTHS_MAX:
            raise invalid(f"from {self.from_month} until {self.until_month}: 1 to {MONTHS_MAX} months", "untilMonth")

    def months(self) -> Iterator[str]:
        month = self.from_month
        while month <= self.until_month:
            yield month
            month = months.following(month)


@dataclasses.dataclass(frozen=True, slots=True)
class Claimed:
    """One try at an export, and the fence under which to say how it goes. `rows_all`: as an earlier try has counted."""

    export_id: str
    project: str
    request: Request
    created: PlatformTime
    rows_all: int | None
    fence: int

    @property
    def object_name(self) -> str:
        """Each try has a file of its own."""
        return f"{folder_of(self.project)}/{self.export_id}-{self.fence}.{format_of(self.request.format).extension}"


def folder_of(project: str) -> str:
    return f"exports/{project}"


def format_of(name: str) -> Format:
    if name not in FORMATS:
        raise invalid(f"format {name[:20]!r} is none of {', '.join(FORMATS)}", "format")
    return FORMATS[name]


def one_month(uow: UnitOfWork, card: RateCard, principal: Principal, project: str, request: Request) -> Source:
    """A month to export at once. Raises NOT_FOUND where there is nothing to invoice in it."""
    principal.require("podyard.billing.view", project, f"projects/{project}/invoices/{request.from_month}")
    access.project_row(uow, project)
    request.check()
    found = export_source.source(uow, card, project, request.from_month, by_job=request.by_job)
    if found is None:
        raise not_found(f"projects/{project}/invoices/{request.from_month}")
    return found


def small_file(found: Source, request: Request) -> bytes:
    """The file of one month. Raises FAILED_PRECONDITION for one that has to be made in the background."""
    made = list(itertools.islice(rows(found, request.granularity), SMALL_ROWS_MAX + 1))
    if len(made) > SMALL_ROWS_MAX:
        raise failed_precondition(
            f"{request.from_month} has more than {SMALL_ROWS_MAX} rows: make an export (POST .../exports)"
        )
    return b"".join(format_of(request.format).encode([(found, made)]))


def create(uow: UnitOfWork, principal: Principal, project: str, request: Request) -> Row:
    """Asks for an export. Raises RESOURCE_EXHAUSTED when as many as there may be are under way."""
    principal.require("podyard.billing.view", project, f"projects/{project}/exports")
    access.project_row(uow, project)
    request.check()
    last = accounts.of(uow, project).month_of(uow.now)
    if request.until_month > last:
        raise invalid(f"untilMonth is {request.until_month}: the present month is {last}", "untilMonth")
    there = uow.all(_OF_PROJECT, {"project": project})
    open_ones = [row for row in there if row["ended"] is None]
    if len(open_ones) >= OPEN_MAX:
        raise PodyardError(Code.RESOURCE_EXHAUSTED, f"{OPEN_MAX} exports of {project} are not done: wait for one")
    for row in [row for row in there if row["ended"] is not None][KEPT_MAX - 1 :]:
        uow.execute(delete(exports).where(exports.c.export_id == row["export_id"]))
    export_id = row_id(uow.streams.stream("exports"), "export")
    values = {"export_id": export_id, "project": project, "created": uow.now, "rows_done": 0}
    _CLAIMS.ask(uow, {**values, **dataclasses.asdict(request)})
    return _row(uow, project, export_id)


def get(uow: UnitOfWork, principal: Principal, project: str, export_id: str) -> Row:
    principal.require("podyard.billing.view", project, f"projects/{project}/exports/{export_id}")
    access.project_row(uow, project)
    return _row(uow, project, export_id)


def list_exports(uow: UnitOfWork, principal: Principal, project: str) -> list[Row]:
    """The newest first; no more than are kept."""
    principal.require("podyard.billing.view", project, f"projects/{project}/exports")
    access.project_row(uow, project)
    return uow.all(_OF_PROJECT, {"project": project})


def result(uow: UnitOfWork, principal: Principal, project: str, export_id: str) -> Row:
    """An export that has a file. Raises FAILED_PRECONDITION while it has none, or why it failed."""
    row = get(uow, principal, project, export_id)
    if row["object_name"] is None:
        why = row["error_message"] or f"it is not done: {row['rows_done']} rows of {row['rows_all'] or 'many'}"
        raise failed_precondition(f"export {export_id} has no file: {why}")
    return row


def claim(uow: UnitOfWork, export_id: str) -> Claimed | None:
    """Takes the next try; None when there is none, or somebody else is at it. An export that so many workers have died
    of has failed."""
    row = _CLAIMS.due(uow, export_id)
    if row is None:
        return None
    if row["tries"] >= TRIES_MAX:
        _end(uow, row, error_code=int(Code.ABORTED), error_message=f"{TRIES_MAX} workers have not come to its end")
        return None
    request = Request(**{field.name: row[field.name] for field in dataclasses.fields(Request)})
    return Claimed(export_id, row["project"], request, row["created"], row["rows_all"], _CLAIMS.take(uow, row))


def month_of(uow: UnitOfWork, card: RateCard, claimed: Claimed, month: str) -> Source | None:
    """A month of a claimed export, as of the moment at which it was asked for. None: nothing was used in it."""
    return export_source.source(uow.at(claimed.created), card, claimed.project, month, by_job=claimed.request.by_job)


def progress(uow: UnitOfWork, claimed: Claimed, rows_done: int, rows_all: int | None) -> bool:
    """Says how far it is (`rows_all` None: they are being counted), and renews the claim; False when the fence is
    another one's by now."""
    row = _held(uow, claimed)
    if row is not None:
        _CLAIMS.renew(uow, row, rows_done=max(rows_done, row["rows_done"]), rows_all=rows_all)
    return row is not None


def finish(uow: UnitOfWork, claimed: Claimed, rows_done: int, size: int, sha256: str) -> bool:
    """Names the file; False, and nothing is written, when another try has been claimed since."""
    row = _held(uow, claimed)
    if row is None:
        return False
    _end(
        uow,
        row,
        rows_done=rows_done,
        rows_all=rows_done,
        object_name=claimed.object_name,
        bytes=size,
        sha256=sha256,
    )
    return True


def fail(uow: UnitOfWork, claimed: Claimed, error: PodyardError) -> None:
    """It cannot be made: the same would come of another try."""
    row = _held(uow, claimed)
    if row is not None:
        _end(uow, row, error_code=int(error.code), error_message=error.message[:ERROR_LENGTH_MAX])


def left_behind(uow: UnitOfWork, project: str, names: Iterable[str]) -> list[str]:
    """Which of these names of files are of exports that have given way, or of tries that died or came too late."""
    there = {row["export_id"]: row for row in uow.all(_OF_PROJECT, {"project": project})}
    found = []
    for name in names:
        row = there.get(name.rpartition("/")[2].lstrip(".").rpartition("-")[0])
        if row is None or (row["ended"] is not None and row["object_name"] != name):
            found.append(name)
    return found


def hint_again(uow: UnitOfWork) -> None:
    _CLAIMS.hint_again(uow)


def _held(uow: UnitOfWork, claimed: Claimed) -> Row | None:
    return _CLAIMS.held(uow, claimed.export_id, claimed.fence)


def _end(uow: UnitOfWork, row: Row, **values: Any) -> None:
    _CLAIMS.end(uow, row, ended=uow.now, **values)


def _row(uow: UnitOfWork, project: str, export_id: str) -> Row:
    row = uow.first(_ONE, {"project": project, "id": export_id})
    if row is None:
        raise not_found(f"projects/{project}/exports/{export_id}")
    return row


_ONE = select(exports).where(exports.c.project == bindparam("project"), exports.c.export_id == bindparam("id"))
_OF_PROJECT = (
    select(exports)
    .where(exports.c.project == bindparam("project"))
    .order_by(exports.c.created.desc(), exports.c.export_id)
)
