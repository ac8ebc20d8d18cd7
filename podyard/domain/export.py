"""Exports that are made in the background: what was asked for, how far it is, and where the result
lies."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime, RealTime


@dataclasses.dataclass(frozen=True, slots=True)
class Export:
    """`created`: months that are open then are exported as of then. `rows_all` None: they are not
    counted yet.
    `fence`: of the try that may write its result; `next_try` None: nothing more is to be done.
    `object_name`: the file, once it is there."""

    export_id: str
    project: str
    format: str
    from_month: str
    until_month: str
    granularity: str
    by_job: bool
    created: PlatformTime
    ended: PlatformTime | None = None
    rows_done: int = 0
    rows_all: int | None = None
    tries: int = 0
    fence: int = 0
    next_try: RealTime | None = None
    error_code: int | None = None
    error_message: str | None = None
    object_name: str | None = None
    bytes: int | None = None
    sha256: str | None = None
