"""Copies the logs of an attempt into the job's output. Called by a task, as often as it likes."""

from __future__ import annotations

from podyard.base.contents import Content, Contents
from podyard.base.log_files import LogFiles
from podyard.control.jobs import log_copies
from podyard.control.jobs.log_copies import LogsToCopy
from podyard.control.jobs.log_reader import LinePage
from podyard.db.store.unit_of_work import Database
from podyard.domain.log import text_of

# of one worker: far beyond the lines that are kept, with the time before each
COPY_BYTES_MAX = 1 << 30
_ACTOR = "logs"


def copy(database: Database, files: LogFiles, contents: Contents, attempt_id: str) -> None:
    logs = database.read(lambda uow: log_copies.find(uow, attempt_id))
    copies = {rank: _content(database, files, contents, logs, rank) for rank in logs.ranks}
    database.run(lambda uow: log_copies.keep(uow, attempt_id, logs, copies), actor=_ACTOR)


def _content(
    database: Database, files: LogFiles, contents: Contents, logs: LogsToCopy, rank: int
) -> Content:
    incoming = contents.incoming(COPY_BYTES_MAX)

    def read(place: str) -> LinePage:
        return database.read(lambda uow: log_copies.read(uow, files, logs, rank, place))

    page = read("")
    incoming.write(_as_bytes(page))
    while page.more:
        page = read(page.place)
        incoming.write(_as_bytes(page))
    return incoming.store()


def _as_bytes(page: LinePage) -> bytes:
    return "".join(map(text_of, page.lines)).encode()
