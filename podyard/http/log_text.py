"""The lines of a job's log as a text to keep: for the API and the console alike."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from podyard.base.log_files import LogFiles
from podyard.control.jobs import jobs
from podyard.control.jobs.log_reader import LineFilter, LinePage
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
            request, lambda uow: jobs.logs(uow, caller, project, zone, job, files, chosen, place, LINES_AT_ONCE)
        )

    def pages(page: LinePage) -> Iterator[str]:
        yield _as_text(page)
        while page.more:
            page = read(page.place)
            yield _as_text(page)

    first = read("")  # what is refused is refused before the answer begins
    name = {"Content-Disposition": f'attachment; filename="{job}.log"'}
    return StreamingResponse(pages(first), media_type="text/plain; charset=utf-8", headers=name)


def _as_text(page: LinePage) -> str:
    return "".join(map(text_of, page.lines))
