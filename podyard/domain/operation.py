"""Long-running operations: they end exactly once, with a response or with an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.machine import Machine

OPERATION = Machine(
    "operation",
    "RUNNING",
    {
        "RUNNING": {"succeed": "SUCCEEDED", "fail": "FAILED", "cancel": "CANCELLED"},
        "SUCCEEDED": {},
        "FAILED": {},
        "CANCELLED": {},
    },
)


@dataclasses.dataclass(frozen=True, slots=True)
class OperationTarget:
    """What an operation is about. `kind`: `node` or `queuedResource`; `key` is the record's own."""

    kind: str
    key: str
    project: str
    zone: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """`target_kind` and `target_key` say which row the response is rendered from; `response` is that rendering's frozen
    source, taken in the unit that ended the operation, so that it never changes afterwards."""

    operation_id: str
    project: str
    zone: str
    verb: str
    target_kind: str
    target_key: str
    target_name: str
    state: str
    version: int
    created: PlatformTime
    ended: PlatformTime | None
    error_code: int | None
    error_message: str | None
    error_details: Sequence[Mapping[str, Any]]
    response: Mapping[str, Any] | None
    cancel_requested: bool
    api_version: str = ""  # of Google's API that began it; empty: the platform did
    status_detail: str = ""  # what the caller should know besides, such as a missing price

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/operations/{self.operation_id}"

    @property
    def done(self) -> bool:
        return OPERATION.is_final(self.state)
