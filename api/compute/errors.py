"""Errors as Compute Engine answers them: HTTP status and reason of each
(cloud.google.com/compute/docs/troubleshooting/troubleshooting-api-errors), and the codes of
operations that have failed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from podyard.base import error_details
from podyard.base.errors import Code, Detail, ErrorInfo, PodyardError
from podyard.domain.compute.refusal import ComputeRefusal, Reason
from podyard.http.errors import RETRY_AFTER_SECONDS
from podyard.http.limits import TooManyRequests

DOMAIN = "compute.googleapis.com"  # of an ErrorInfo whose reason is the code of an operation
_USAGE_LIMITS = (Reason.QUOTA_EXCEEDED, Reason.RATE_LIMIT_EXCEEDED)

# The reason of an error that has none, and the code of an operation's.
_BY_CODE: Mapping[Code, tuple[Reason, str]] = {
    Code.INVALID_ARGUMENT: (Reason.INVALID, "INVALID_FIELD_VALUE"),
    Code.OUT_OF_RANGE: (Reason.INVALID, "INVALID_FIELD_VALUE"),
    Code.NOT_FOUND: (Reason.NOT_FOUND, "RESOURCE_NOT_FOUND"),
    Code.ALREADY_EXISTS: (Reason.ALREADY_EXISTS, "RESOURCE_ALREADY_EXISTS"),
    Code.PERMISSION_DENIED: (Reason.FORBIDDEN, "PERMISSIONS_ERROR"),
    Code.FAILED_PRECONDITION: (Reason.NOT_READY, "RESOURCE_NOT_READY"),
    Code.ABORTED: (Reason.CONDITION_NOT_MET, "CONDITION_NOT_MET"),
    Code.RESOURCE_EXHAUSTED: (Reason.QUOTA_EXCEEDED, "ZONE_RESOURCE_POOL_EXHAUSTED"),
    Code.CANCELLED: (Reason.INVALID, "OPERATION_CANCELED_BY_USER"),
    Code.UNIMPLEMENTED: (Reason.NOT_IMPLEMENTED, "UNSUPPORTED_OPERATION"),
    Code.UNAVAILABLE: (Reason.BACKEND_ERROR, "INTERNAL_ERROR"),
}
_FALLBACK = (Reason.INTERNAL_ERROR, "INTERNAL_ERROR")
# Where it is another status than that of the google.rpc code.
_HTTP_STATUS: Mapping[Reason, int] = {
    Reason.CONDITION_NOT_MET: 412,
    Reason.QUOTA_EXCEEDED: 403,
    Reason.RATE_LIMIT_EXCEEDED: 403,
}


def reason_of(error: PodyardError) -> Reason:
    if isinstance(error, ComputeRefusal):
        return error.reason
    if isinstance(error, TooManyRequests):
        return Reason.RATE_LIMIT_EXCEEDED
    return _BY_CODE.get(error.code, _FALLBACK)[0]


def envelope(error: PodyardError) -> dict[str, Any]:
    """Google's JSON of an error, with the `errors` that the older APIs have besides."""
    reason = reason_of(error)
    domain = "usageLimits" if reason in _USAGE_LIMITS else "global"
    body: dict[str, Any] = {
        "code": status_of(error),
        "message": error.message,
        "errors": [{"message": error.message, "domain": domain, "reason": reason.value}],
        "status": error.code.name,
    }
    if error.details:
        body |= {"details": [error_details.to_json(detail) for detail in error.details]}
    return {"error": body}


def status_of(error: PodyardError) -> int:
    return _HTTP_STATUS.get(reason_of(error), error.code.http_status)


def answer(error: PodyardError) -> Response:
    seconds: float = RETRY_AFTER_SECONDS if error.code is Code.UNAVAILABLE else 0
    if isinstance(error, TooManyRequests):
        seconds = error.retry_seconds
    headers = {"Retry-After": str(seconds)} if seconds else {}
    content = json.dumps(envelope(error), ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status_of(error), headers, "application/json; charset=UTF-8")


def operation_code(code: int, details: Sequence[Detail]) -> str:
    """The code that an operation's error has: `ZONE_RESOURCE_POOL_EXHAUSTED`."""
    for detail in details:
        if isinstance(detail, ErrorInfo) and detail.domain == DOMAIN:
            return detail.reason
    return _BY_CODE.get(Code(code), _FALLBACK)[1]


def operation_status(code: int) -> int:
    """The HTTP status that an operation's error has."""
    reason = _BY_CODE.get(Code(code), _FALLBACK)[0]
    return _HTTP_STATUS.get(reason, Code(code).http_status)
