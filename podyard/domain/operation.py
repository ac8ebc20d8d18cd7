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
    """As google.cloud.tpu.v2.OperationMetadata and Compute Engine's operationType name it: by the
    method."""

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
    INSERT = "insert"
    PATCH = "patch"
    RESIZE = "resize"
    SET_LABELS = "setLabels"
    PREEMPT = "preempt"
    DELETE_INSTANCES = "deleteInstances"
    BULK_INSERT = "bulkInsert"
    SET_METADATA = "setMetadata"
    SET_TAGS = "setTags"
    SET_SCHEDULING = "setScheduling"
    SET_MACHINE_TYPE = "setMachineType"
    SET_SERVICE_ACCOUNT = "setServiceAccount"
    ATTACH_DISK = "attachDisk"
    DETACH_DISK = "detachDisk"
    SET_COMMON_METADATA = "setCommonInstanceMetadata"
    SET_DELETION_PROTECTION = "setDeletionProtection"
    SET_DISK_AUTO_DELETE = "setDiskAutoDelete"
    SET_MIN_CPU_PLATFORM = "setMinCpuPlatform"
    UPDATE_DISPLAY_DEVICE = "updateDisplayDevice"
    UPDATE_SHIELDED_CONFIG = "updateShieldedInstanceConfig"
    ADD_ACCESS_CONFIG = "addAccessConfig"
    DELETE_ACCESS_CONFIG = "deleteAccessConfig"
    UPDATE_ACCESS_CONFIG = "updateAccessConfig"
    ADD_RESOURCE_POLICIES = "addResourcePolicies"
    REMOVE_RESOURCE_POLICIES = "removeResourcePolicies"
    SUSPEND = "suspend"
    RESUME = "resume"
    EXPAND_RANGE = "expandIpCidrRange"
    SET_PRIVATE_ACCESS = "setPrivateIpGoogleAccess"
    SWITCH_TO_CUSTOM_MODE = "switchToCustomMode"
    CANCEL = "cancel"


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
    """The target of an operation. `key` is the record's own. `zone`: of the TPU API a zone, of
    Compute Engine a zone, a region or `global`. `number`: as Compute Engine shows it."""

    kind: ResourceKind
    key: str
    project: str
    zone: str
    name: str
    number: int = 0


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
    created_by: str = ""  # who asked for it; empty: the platform, or nobody knows any more
    target_number: int = 0  # of what Compute Engine changes

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/operations/{self.operation_id}"

    @property
    def is_done(self) -> bool:
        return OPERATION.is_final(self.state)
