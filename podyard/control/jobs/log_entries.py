"""Log entries of a project: what programs have written to Cloud Logging, the lines of its jobs and
of the scripts of its hosts, and its part of the audit log.

Each source gives its entries of a time in the order that was asked for, and they are merged. A page
looks at a limited number of them: one with fewer entries than asked, or none, may have a next page.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path

from podyard.base.clock import RealTime
from podyard.base.errors import invalid_field
from podyard.base.log_files import LogFiles
from podyard.control.access import identity
from podyard.control.compute import host_logs
from podyard.control.jobs import log_reader
from podyard.control.jobs.log_reader import LineFilter
from podyard.db.compute import nodes
from podyard.db.jobs import jobs as job_rows
from podyard.db.platform import audit
from podyard.db.platform import log_entries as rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.observed import entry_sources
from podyard.domain.observed.log_entry import (
    AUDIT_LOG,
    ENTRIES_PER_PROJECT_MAX,
    JOB_LOG,
    SCRIPT_LOG,
    EntryOrder,
    LogEntry,
)
from podyard.domain.observed.log_filter import LogFilter
from podyard.domain.principal import Principal

LIST = "logging.logEntries.list"
LIST_LOGS = "logging.logs.list"
LIST_AUDIT = "logging.privateLogEntries.list"
CREATE = "logging.logEntries.create"
SCANNED_MAX = 1000  # entries of each source that one page looks at
JOBS_MAX = 50  # whose lines a list has: the newest ones
NODES_MAX = 50  # whose scripts' lines a list has: the newest ones
PROJECTS_MAX = 100  # Google's limit of resource names in one request


@dataclasses.dataclass(frozen=True, slots=True)
class EntryQuery:
    """`after`: the place of the last entry of the page before."""

    projects: Sequence[str]
    condition: LogFilter
    newest_first: bool
    size: int
    after: EntryOrder | None


@dataclasses.dataclass(frozen=True, slots=True)
class EntryPage:
    """`place`: of the last entry that was looked at, if there may be more behind it."""

    entries: list[LogEntry]
    place: EntryOrder | None


def write(uow: UnitOfWork, principal: Principal, project: str, entries: Sequence[LogEntry]) -> None:
    """Keeps entries of one project; one that is there already (the same time and insert id) is
    left as it is."""
    principal.require(CREATE, project, f"projects/{project}")
    identity.project_row(uow, project)
    known = rows.stored_ids(uow, project, [entry.insert_id for entry in entries])
    fresh = {(entry.at.nanos, entry.insert_id): entry for entry in entries}
    added = [entry for key, entry in fresh.items() if key not in known]
    if added:
        rows.add(uow, added)
        rows.prune(uow, project, ENTRIES_PER_PROJECT_MAX)


def list_page(
    uow: UnitOfWork, principal: Principal, files: LogFiles, data: Path, query: EntryQuery
) -> EntryPage:
    """Raises PERMISSION_DENIED unless the caller may read the logs of every project that is
    named. `data`: Podyard's folder."""
    if not 1 <= len(query.projects) <= PROJECTS_MAX:
        raise invalid_field(f"name 1 to {PROJECTS_MAX} projects", "resource_names")
    for project in query.projects:
        principal.require(LIST, project, f"projects/{project}")
    sources: list[list[LogEntry]] = []
    for project in dict.fromkeys(query.projects):
        sources += _sources(uow, principal, files, project, query)
        if principal.may("tpu.nodes.list", project):
            sources.append(_of_scripts(uow, data, project, query))
    # Behind the end of a source that was cut off, nothing is known.
    ends = [source[-1].order for source in sources if len(source) >= SCANNED_MAX]
    end = (max(ends) if query.newest_first else min(ends)) if ends else None
    merged = heapq.merge(*sources, key=lambda entry: entry.order, reverse=query.newest_first)
    page: list[LogEntry] = []
    for entry in merged:
        if len(page) == query.size:
            return EntryPage(page, page[-1].order)
        if query.condition.test(entry):
            page.append(entry)
        if entry.order == end:
            return EntryPage(page, end)
    return EntryPage(page, None)


def log_ids(uow: UnitOfWork, principal: Principal, project: str) -> list[str]:
    """The logs of a project that have entries that the caller may read."""
    principal.require(LIST_LOGS, project, f"projects/{project}")
    names = rows.log_ids(uow, project)
    if principal.may("podyard.jobs.list", project) and job_rows.newest(uow, project, 1):
        names.append(JOB_LOG)
    if principal.may("tpu.nodes.list", project) and nodes.newest(uow, project, 1):
        names.append(SCRIPT_LOG)
    if principal.may(LIST_AUDIT, project):
        names.append(AUDIT_LOG)
    return sorted(set(names))


def _sources(
    uow: UnitOfWork, principal: Principal, files: LogFiles, project: str, query: EntryQuery
) -> Iterator[list[LogEntry]]:
    since, until = _bounds(query)
    newest_first = query.newest_first
    span = (since, until)
    yield rows.of_project(uow, project, span, query.after, SCANNED_MAX, newest_first=newest_first)
    if principal.may("podyard.jobs.list", project):
        for job in job_rows.newest(uow, project, JOBS_MAX):
            lines = log_reader.tail(uow, files, job.job_key, LineFilter(), SCANNED_MAX)
            entries = sorted(
                (entry_sources.of_job_line(job, line) for line in lines),
                key=lambda entry: entry.order,
                reverse=newest_first,
            )
            yield [
                entry
                for entry in _rest(entries, query)
                if (since is None or entry.at >= since) and (until is None or entry.at <= until)
            ]
    if principal.may(LIST_AUDIT, project):
        lines_of = audit.of_project(
            uow, project, since, until, SCANNED_MAX, newest_first=newest_first
        )
        yield _rest([entry_sources.of_audit(project, line) for line in lines_of], query)


def _bounds(query: EntryQuery) -> tuple[RealTime | None, RealTime | None]:
    """The times that the page can have: the filter's, cut off at the place of the page before."""
    since, until = query.condition.since, query.condition.until
    if query.after is None:
        return since, until
    place = RealTime(query.after[0])
    if query.newest_first:
        return since, place if until is None else min(place, until)
    return place if since is None else max(place, since), until


def _rest(entries: Sequence[LogEntry], query: EntryQuery) -> list[LogEntry]:
    """The entries behind the page before."""
    place = query.after
    if place is None:
        return list(entries)
    if query.newest_first:
        return [entry for entry in entries if entry.order < place]
    return [entry for entry in entries if entry.order > place]


def _of_scripts(uow: UnitOfWork, data: Path, project: str, query: EntryQuery) -> list[LogEntry]:
    """The last lines that scripts of hosts on this machine have written. They have no times of
    their own: each has that of its file's last one."""
    since, until = _bounds(query)
    entries = []
    for node in nodes.newest(uow, project, NODES_MAX):
        for log in host_logs.last_lines(data, node.node_key, node.host_count):
            if (since is None or log.written >= since) and (until is None or log.written <= until):
                entries += [
                    entry_sources.of_script(
                        node, log.host, log.script, log.written, at, log.lines[at]
                    )
                    for at in range(len(log.lines))
                ]
    ordered = sorted(entries, key=lambda entry: entry.order, reverse=query.newest_first)
    return _rest(ordered, query)[:SCANNED_MAX]
