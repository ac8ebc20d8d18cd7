"""Cloud Logging: writing and listing entries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from podyard.api import deps
from podyard.api.google_apis.call import ApiCall
from podyard.base.clock import RealTime
from podyard.base.errors import invalid
from podyard.base.log_files import LogFiles
from podyard.base.rng import secret_token
from podyard.control.jobs import log_entries
from podyard.control.jobs.log_entries import EntryQuery
from podyard.domain.observed import log_filter
from podyard.domain.observed.log_entry import (
    ENTRIES_PER_WRITE_MAX,
    ENTRY_BYTES_MAX,
    SEVERITIES,
    EntryOrder,
    LogEntry,
    log_name,
    severity_name,
)

PAGE_SIZE_DEFAULT = 50  # Google's
PAGE_SIZE_MAX = 1000  # Google's
LOG_ID_CHARACTERS_MAX = 511  # Google's limit
LABELS_MAX = 64
_LOG_NAME = re.compile(r"projects/([^/]+)/logs/([^/]+)")
_LOG_ID = re.compile(r"[A-Za-z0-9/_.-]+")
_ORDERS = {"": False, "timestamp": False, "timestamp asc": False, "timestamp desc": True}


def write(call: ApiCall) -> dict[str, Any]:
    """All entries or none. The project is that of the log names, which name one only."""
    entries = call.body.get("entries", [])
    if not 1 <= len(entries) <= ENTRIES_PER_WRITE_MAX:
        raise invalid(f"entries: send 1 to {ENTRIES_PER_WRITE_MAX}", "entries")
    now = deps.platform(call.request).clock.now()
    records = [_entry(call.body, entry, now) for entry in entries]
    projects = {record.project for record in records}
    if len(projects) > 1:
        raise invalid(
            f"the entries name {len(projects)} projects: write to one project at a time", "logName"
        )
    (project,) = projects
    if call.body.get("dryRun"):
        call.caller.require(log_entries.CREATE, project, f"projects/{project}")
        return {}
    call.write(lambda uow: log_entries.write(uow, call.caller, project, records))
    return {}


def list_entries(call: ApiCall) -> dict[str, Any]:
    body = call.body
    order = str(body.get("orderBy", "")).strip()
    if order not in _ORDERS:
        raise invalid(f"orderBy {order[:40]!r}: use timestamp asc or timestamp desc", "orderBy")
    size = body.get("pageSize") or PAGE_SIZE_DEFAULT
    if size < 0:
        raise invalid("pageSize is negative", "pageSize")
    query = EntryQuery(
        projects=_projects(body),
        condition=log_filter.read(body.get("filter", "")),
        newest_first=_ORDERS[order],
        size=min(size, PAGE_SIZE_MAX),
        after=_read_place(call.after(body.get("pageToken", ""))),
    )
    settings = deps.platform(call.request).settings
    files = LogFiles(settings.logs_path)
    page = call.read(
        lambda uow: log_entries.list_page(uow, call.caller, files, settings.data, query)
    )
    answer: dict[str, Any] = {"entries": [_message(entry) for entry in page.entries]}
    if page.place is not None:
        answer |= {"nextPageToken": call.token(json.dumps(page.place))}
    return answer


def list_logs(call: ApiCall) -> dict[str, Any]:
    ids = call.read(lambda uow: log_entries.log_ids(uow, call.caller, call.project))
    page, token = call.page(ids, lambda log_id: log_id)
    answer: dict[str, Any] = {"logNames": [log_name(call.project, log_id) for log_id in page]}
    return answer | ({"nextPageToken": token} if token else {})


def _check(permission: str) -> Callable[[ApiCall], None]:
    """The body names the projects. A caller who may do so in none is refused before it is read."""

    def check(call: ApiCall) -> None:
        if not any(call.caller.may(permission, project) for project in call.caller.roles):
            call.caller.require(permission, "*", "projects/-")

    return check


def _projects(body: Mapping[str, Any]) -> list[str]:
    names = [*body.get("resourceNames", ()), *(f"projects/{p}" for p in body.get("projectIds", ()))]
    projects = []
    for name in names:
        kind, _, project = name.partition("/")
        if kind != "projects" or not project or "/" in project:
            raise invalid(f"resourceNames: {name[:80]!r} is not projects/ID", "resourceNames")
        projects.append(project)
    return projects


def _entry(body: Mapping[str, Any], entry: Mapping[str, Any], now: RealTime) -> LogEntry:
    """An entry with what the request says of all of them."""
    match = _LOG_NAME.fullmatch(entry.get("logName") or body.get("logName") or "")
    log_id = unquote(match[2]) if match else ""
    if match is None or len(log_id) > LOG_ID_CHARACTERS_MAX or not _LOG_ID.fullmatch(log_id):
        raise invalid(
            "logName must be projects/ID/logs/LOG_ID, with a LOG_ID of letters, digits and "
            "/ _ - . (the slash as %2F)",
            "logName",
        )
    resource = entry.get("resource") or body.get("resource") or {}
    labels = {**body.get("labels", {}), **entry.get("labels", {})}
    payload = entry.get("jsonPayload", entry.get("protoPayload"))
    text = entry.get("textPayload")
    if text is not None and payload is not None:
        raise invalid("an entry has one payload: textPayload or jsonPayload", "entries")
    size = len(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace"))
    if size > ENTRY_BYTES_MAX or len(labels) > LABELS_MAX:
        raise invalid(
            f"an entry has at most {ENTRY_BYTES_MAX} bytes and {LABELS_MAX} labels", "entries"
        )
    return LogEntry(
        project=match[1],
        log_id=log_id,
        at=_time(entry.get("timestamp"), now),
        received=now,
        severity=_severity(entry.get("severity", "DEFAULT")),
        insert_id=str(entry.get("insertId") or secret_token(12))[:256],
        resource_type=resource.get("type", "global")[:128],
        resource_labels={"project_id": match[1], **resource.get("labels", {})},
        labels=labels,
        text=text,
        payload=payload,
    )


def _time(text: str | None, now: RealTime) -> RealTime:
    try:
        return now if text is None else RealTime.from_rfc3339(text)
    except ValueError as error:
        raise invalid(str(error), "timestamp") from None


def _severity(name: str) -> int:
    if name.upper() not in SEVERITIES:
        raise invalid(f"severity {name[:20]!r}: use one of {', '.join(SEVERITIES)}", "severity")
    return SEVERITIES[name.upper()]


def _read_place(text: str | None) -> EntryOrder | None:
    if text is None:
        return None
    nanos, key = json.loads(text)
    return EntryOrder(int(nanos), str(key))


def _message(entry: LogEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "logName": entry.log_name,
        "resource": {"type": entry.resource_type, "labels": dict(entry.resource_labels)},
        "timestamp": entry.at.rfc3339(),
        "receiveTimestamp": entry.received.rfc3339(),
        "severity": severity_name(entry.severity),
        "insertId": entry.insert_id,
    }
    if entry.labels:
        shown |= {"labels": dict(entry.labels)}
    if entry.payload is None:
        return shown | {"textPayload": entry.text or ""}
    return shown | {"protoPayload" if entry.is_proto else "jsonPayload": dict(entry.payload)}


HANDLERS: dict[str, Callable[[ApiCall], dict[str, Any]]] = {
    "logging.v2.entries.write": write,
    "logging.v2.entries.list": list_entries,
    "logging.v2.projects.logs.list": list_logs,
}
CHECKS: dict[str, Callable[[ApiCall], None]] = {
    "logging.v2.entries.write": _check(log_entries.CREATE),
    "logging.v2.entries.list": _check(log_entries.LIST),
}
