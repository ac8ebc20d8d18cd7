"""The source of a job, as the API and the console receive it, and what is looked at before the job
is created."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

from starlette.requests import Request

from podyard.base.contents import Contents
from podyard.control.jobs import sources
from podyard.domain.job import JobRequest
from podyard.domain.user_program import check_user_program
from podyard.http import context
from podyard.http.incoming import receive


async def keep(request: Request, project: str, name: str, pieces: AsyncIterator[bytes]) -> str:
    """Stores what comes as an object of the project's bucket for jobs; returns its gs:// name."""
    caller = context.principal(request)
    sources.check_upload(caller, project, name)
    contents = Contents(context.platform(request).settings.contents_path)
    content = await receive(contents, pieces, sources.SOURCE_BYTES_MAX)
    return await context.write_async(
        request, lambda uow: sources.keep(uow, caller, project, name, content)
    )


def look(request: Request, asked: JobRequest) -> JobRequest:
    """The request with what the storage says of the program's files; other jobs as they are.
    Blocks."""
    if asked.run is None:
        return asked
    check_user_program(asked.run)
    caller, run = context.principal(request), asked.run
    if run.files:
        found = context.read(request, lambda uow: sources.find(uow, caller, run))
        run = sources.look(found, Contents(context.platform(request).settings.contents_path))
    return dataclasses.replace(asked, run=run)
