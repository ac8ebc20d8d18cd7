"""Log entries, as Cloud Logging has them (discovery document logging v2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple
from urllib.parse import quote

from podyard.base.clock import RealTime


class Severity(IntEnum):
    """google.logging.type.LogSeverity"""

    DEFAULT = 0
    DEBUG = 100
    INFO = 200
    NOTICE = 300
    WARNING = 400
    ERROR = 500
    CRITICAL = 600
    ALERT = 700
    EMERGENCY = 800


SEVERITIES: Mapping[str, int] = {severity.name: severity.value for severity in Severity}
AUDIT_LOG = "cloudaudit.googleapis.com/activity"
JOB_LOG = "podyard.googleapis.com/jobs"
SCRIPT_LOG = "google_metadata_script_runner"  # as Google names the log of start-up scripts
# Of one project: the oldest go first. Twenty thousand lines of 256 bytes are 5 MB.
ENTRIES_PER_PROJECT_MAX = 20_000
ENTRIES_PER_WRITE_MAX = 1000  # Google's limit
ENTRY_BYTES_MAX = 256 << 10  # Google's limit


class EntryOrder(NamedTuple):
    """The place in a list that is sorted by time: of one moment, entries that were written come
    first, by their numbers."""

    nanos: int
    key: str

    @property
    def seq(self) -> int | None:
        return int(self.key) if self.key.isdecimal() else None


@dataclasses.dataclass(frozen=True, slots=True)
class LogEntry:
    """`log_id` without the project, as in `my-log`; one of `text` and `payload` is set. `seq`: the
    number of an entry that was written; 0 of what Podyard keeps elsewhere."""

    project: str
    log_id: str
    at: RealTime
    received: RealTime
    severity: int
    insert_id: str
    resource_type: str
    resource_labels: Mapping[str, str]
    labels: Mapping[str, str]
    text: str | None = None
    payload: Mapping[str, Any] | None = None
    seq: int = 0

    @property
    def log_name(self) -> str:
        return log_name(self.project, self.log_id)

    @property
    def order(self) -> EntryOrder:
        return EntryOrder(self.at.nanos, f"{self.seq:019d}" if self.seq else f"~{self.insert_id}")

    @property
    def is_proto(self) -> bool:
        return self.payload is not None and "@type" in self.payload


def log_name(project: str, log_id: str) -> str:
    return f"projects/{project}/logs/{quote(log_id, safe='')}"


def severity_name(number: int) -> str:
    """The name of a severity; a number between two names has the lower one."""
    return max(severity for severity in Severity if severity <= number).name
