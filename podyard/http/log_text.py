"""The lines of a job's log as a text to keep: for the API and the console alike."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from podyard.base.log_files import LogFiles
from podyard.control.jobs import jobs
from podyard.control.jobs.log_reader import LineFilter, LinePage
from podyard.domain.job import Job
from podyard.domain.log import text_of
from podyard.http import context

LINES_AT_ONCE = 1000


def files_of(request: Request) -> LogFiles:
    return LogFiles(context.platform(request).settings.logs_path)


def log_text(request: Request, project: str, zone: str, job: str, chosen: LineFilter) -> Response:
    """All lines up to now, each with its time, [attempt.worker] and its stream."""
    caller, files = context.principal(request), files_of(request)

    def read(place: str) -> LinePage:
        return context.read(
            request,
            lambda uow: jobs.logs(
                uow, caller, project, zone, job, files, chosen, place, LINES_AT_ONCE
            ),
        )

    of_job = context.read(request, lambda uow: jobs.get(uow, caller, project, zone, job))

    def pages(page: LinePage) -> Iterator[str]:
        yield _as_text(of_job, page)
        while page.more:
            page = read(page.place)
            yield _as_text(of_job, page)

    first = read("")  # what is refused is refused before the answer begins
    name = {"Content-Disposition": f'attachment; filename="{job}.log"'}
    return StreamingResponse(pages(first), media_type="text/plain; charset=utf-8", headers=name)


def _as_text(job: Job, page: LinePage) -> str:
    return "".join(text_of(line, job.slice_of(line.rank)) for line in page.lines)
