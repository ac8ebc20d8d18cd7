"""Long-running operations: they end exactly once, with a response or with an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import Detail
from podyard.domain.machine import Machine, ResourceKind


class OperationState(StrEnum):
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class OperationVerb(StrEnum):
    """As google.cloud.tpu.v2.OperationMetadata names it: by the method."""

    CREATE = "create"
    DELETE = "delete"
    UPDATE = "update"
    START = "start"
    STOP = "stop"
    REIMAGE = "reimage"
    RESET = "reset"
    SIMULATE_MAINTENANCE_EVENT = "simulateMaintenanceEvent"
    SCHEDULE_MAINTENANCE = "scheduleMaintenance"
    PERFORM_MAINTENANCE = "performMaintenance"
    PERFORM_MAINTENANCE_QUEUED_RESOURCE = "performMaintenanceQueuedResource"


OPERATION = Machine(
    "operation",
    OperationState.RUNNING,
    {
        OperationState.RUNNING: {
            "succeed": OperationState.SUCCEEDED,
            "fail": OperationState.FAILED,
            "cancel": OperationState.CANCELLED,
        },
        OperationState.SUCCEEDED: {},
        OperationState.FAILED: {},
        OperationState.CANCELLED: {},
    },
)


@dataclasses.dataclass(frozen=True, slots=True)
class OperationTarget:
    """What an operation is about. `key` is the record's own."""

    kind: ResourceKind
    key: str
    project: str
    zone: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """`target_kind` and `target_key` say which row the response is rendered from; `response` is
    that rendering's frozen source, taken in the unit that ended the operation, so that it never
    changes afterwards. `lost`, by a fault: nobody is told of it."""

    operation_id: str
    project: str
    zone: str
    verb: OperationVerb
    target_kind: ResourceKind
    target_key: str
    target_name: str
    state: OperationState
    version: int
    created: PlatformTime
    ended: PlatformTime | None
    error_code: int | None
    error_message: str | None
    error_details: Sequence[Detail]
    response: Mapping[str, Any] | None
    cancel_requested: bool
    api_version: str = ""  # of Google's API that began it; empty: the platform did
    lost: bool = False
    status_detail: str = ""  # what the caller should know besides, such as a missing price

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/operations/{self.operation_id}"

    @property
    def is_done(self) -> bool:
        return OPERATION.is_final(self.state)
