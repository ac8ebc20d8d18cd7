"""Refusals of Compute Engine, each with the reason that clients test
(cloud.google.com/compute/docs/troubleshooting/troubleshooting-api-errors)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from podyard.base.errors import Code, Detail, PodyardError


class Reason(StrEnum):
    BAD_REQUEST = "badRequest"
    INVALID = "invalid"
    REQUIRED = "required"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "notFound"
    ALREADY_EXISTS = "alreadyExists"
    IN_USE = "resourceInUseByAnotherResource"
    NOT_READY = "resourceNotReady"
    CONDITION_NOT_MET = "conditionNotMet"
    QUOTA_EXCEEDED = "quotaExceeded"
    RATE_LIMIT_EXCEEDED = "rateLimitExceeded"
    NOT_IMPLEMENTED = "notImplemented"
    INTERNAL_ERROR = "internalError"
    BACKEND_ERROR = "backendError"


_CODES: Mapping[Reason, Code] = {
    Reason.BAD_REQUEST: Code.INVALID_ARGUMENT,
    Reason.INVALID: Code.INVALID_ARGUMENT,
    Reason.REQUIRED: Code.INVALID_ARGUMENT,
    Reason.FORBIDDEN: Code.PERMISSION_DENIED,
    Reason.NOT_FOUND: Code.NOT_FOUND,
    Reason.ALREADY_EXISTS: Code.ALREADY_EXISTS,
    Reason.IN_USE: Code.FAILED_PRECONDITION,
    Reason.NOT_READY: Code.FAILED_PRECONDITION,
    Reason.CONDITION_NOT_MET: Code.ABORTED,
    Reason.QUOTA_EXCEEDED: Code.RESOURCE_EXHAUSTED,
    Reason.RATE_LIMIT_EXCEEDED: Code.RESOURCE_EXHAUSTED,
    Reason.NOT_IMPLEMENTED: Code.UNIMPLEMENTED,
    Reason.INTERNAL_ERROR: Code.INTERNAL,
    Reason.BACKEND_ERROR: Code.UNAVAILABLE,
}


class ComputeRefusal(PodyardError):
    """A refused request of Compute Engine."""

    def __init__(self, reason: Reason, message: str, details: Sequence[Detail] = ()) -> None:
        super().__init__(_CODES[reason], message, details)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.reason, self.message, self.details))


def resource_not_found(path: str) -> ComputeRefusal:
    """`path`: `projects/P/zones/Z/disks/D`. Google's words."""
    return ComputeRefusal(Reason.NOT_FOUND, f"The resource '{path}' was not found")


def already_exists(path: str) -> ComputeRefusal:
    return ComputeRefusal(Reason.ALREADY_EXISTS, f"The resource '{path}' already exists")


def field_required(field: str) -> ComputeRefusal:
    return ComputeRefusal(Reason.REQUIRED, f"Required field '{field}' not specified")


def invalid_value(field: str, value: object, why: str) -> ComputeRefusal:
    """`field`: below the body, as in `network`. Google's words."""
    text = f"Invalid value for field 'resource.{field}': '{value}'. {why}"
    return ComputeRefusal(Reason.INVALID, text)


def quota_exceeded(metric: str, limit: int) -> ComputeRefusal:
    """Google's words."""
    text = f"Quota '{metric}' exceeded.  Limit: {limit:.1f} globally."
    return ComputeRefusal(Reason.QUOTA_EXCEEDED, text)


def in_use(kind: str, path: str, user: str) -> ComputeRefusal:
    """`user`: the path of what has it. Google's words."""
    text = f"The {kind} resource '{path}' is already being used by '{user}'"
    return ComputeRefusal(Reason.IN_USE, text)


_STALE = {
    "labels": "Labels fingerprint either invalid or resource labels have changed",
    "tags": "Tags fingerprint either invalid or resource labels have changed",
    "metadata": "Supplied fingerprint does not match current metadata fingerprint.",
}


def require_fingerprint(what: str, given: str, current: str) -> None:
    """Raise Google's refusal of a change of labels, tags or metadata that were read before another
    change. `what`: a word of `_STALE`."""
    if given != current:
        raise ComputeRefusal(Reason.CONDITION_NOT_MET, _STALE[what])
