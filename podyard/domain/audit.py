"""One line of the audit log."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import RealTime


@dataclasses.dataclass(frozen=True, slots=True)
class AuditLine:
    """`actor`: the caller's email; "" where no credential was accepted. `by_door`: from another
    machine. `status`: the HTTP status of the answer. `path`: without its query, which may hold
    credentials."""

    at: RealTime
    actor: str
    address: str
    by_door: bool
    method: str
    path: str
    status: int
    request_id: str
    seq: int = 0  # its number, once it is stored
