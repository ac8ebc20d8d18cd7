"""A job's log, range by range: it opens at a time, at the first error or at its end, and goes on in
both directions."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.control.jobs import log_ranges, log_reader
from podyard.control.jobs.log_ranges import AskedRange, LogRange, LogStart
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.http import context, log_text
from podyard.web.kit.commands import Command, line
from podyard.web.kit.render import ConsoleRoute, page, project_url

LINES_A_PAGE = 500  # some 60 kB
SEARCH_CHARACTERS_MAX = 200
RANK_DIGITS_MAX = 6

router = APIRouter(prefix="/console/{project}/jobs", route_class=ConsoleRoute)


@router.get("/{zone}/{job_id}/lines")
def show(request: Request, project: str, zone: str, job_id: str) -> Response:
    given, error = request.query_params, None
    chosen = _filter(given.get("replica", ""), given.get("search", ""))
    try:
        asked = _asked(
            given.get("from", LogStart.END), given.get("place", ""), given.get("time", "")
        )
    except PodyardError as refused:
        asked, error = AskedRange(LogStart.END), refused
    caller, files = context.principal(request), log_text.files_of(request)

    def body(uow: UnitOfWork) -> LogRange:
        return log_ranges.read(
            uow, caller, project, zone, job_id, files, chosen, asked, LINES_A_PAGE
        )

    found = context.read(request, body)
    url = project_url(project, "jobs", zone, job_id)
    return page(
        request,
        "job_log.html",
        status=200 if error is None else error.code.http_status,
        section="jobs",
        wide=True,
        project=project,
        job_id=job_id,
        job_url=url,
        url=f"{url}/lines",
        found=found,
        lines=found.page.lines,
        replicas=found.workers,
        chosen=chosen,
        links=_links(chosen, found),
        time=given.get("time", ""),
        no_error=asked.start is LogStart.ERROR and found.error is None,
        error=error.message if error else None,
        commands=[_command(project, zone, job_id, chosen)],
    )


def _filter(worker: str, search: str) -> LineFilter:
    """Values that cannot be read show all: they come from the address."""
    is_rank = worker.isascii() and worker.isdecimal() and len(worker) <= RANK_DIGITS_MAX
    return LineFilter(
        worker=int(worker) if is_rank else None, search=search.strip()[:SEARCH_CHARACTERS_MAX]
    )


def _asked(start: str, place: str, time: str) -> AskedRange:
    if start not in tuple(LogStart) or not log_reader.is_place(place):
        raise invalid("The address has a place in the log that is not understood.", "from")
    if start != LogStart.TIME:
        return AskedRange(LogStart(start), place)
    text = time.strip().removesuffix("Z").replace(" ", "T")
    text = f"{text}:00" if text.count(":") == 1 else text  # browsers leave out seconds that are 0
    try:
        return AskedRange(LogStart.TIME, at=PlatformTime.from_rfc3339(f"{text}Z"))
    except ValueError:
        raise invalid(
            f"{time[:40]!r} is not a time such as 2026-03-01 09:00:00 (UTC)", "time"
        ) from None


def _links(chosen: LineFilter, found: LogRange) -> dict[str, str]:
    """Return where the page leads: queries, by what they are called; only those that lead
    anywhere."""
    kept: dict[str, Any] = {"search": chosen.search} if chosen.search else {}
    kept |= {} if chosen.worker is None else {"replica": chosen.worker}

    def query(start: LogStart, place: str = "") -> str:
        return urlencode({**kept, "from": str(start), **({"place": place} if place else {})})

    links = {
        "first": query(LogStart.PLACE),
        "error": query(LogStart.ERROR),
        "last": query(LogStart.END),
    }
    links |= {"earlier": query(LogStart.BEFORE, found.first)} if found.earlier else {}
    return links | ({"later": query(LogStart.PLACE, found.page.place)} if found.page.more else {})


def _command(project: str, zone: str, job_id: str, chosen: LineFilter) -> Command:
    flags = [("--project", project), ("--zone", zone)]
    flags += [] if chosen.worker is None else [("--worker", str(chosen.worker))]
    flags += [("--grep", chosen.search)] if chosen.search else []
    return Command("podyard", line(["podyard", "job", "logs", job_id], flags, []))
