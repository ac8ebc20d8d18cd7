"""Expected failures.

Two kinds of failure are never mixed: an expected one is a `PodyardError` with a google.rpc code and a reason;
a broken invariant is an `AssertionError` and stops the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum


class Code(IntEnum):
    """google.rpc.Code, numbers as in google/rpc/code.proto."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def http_status(self) -> int:
        """HTTP status of this code (comments in google/rpc/code.proto)."""
        return _HTTP_STATUS[self]


_HTTP_STATUS: Mapping[Code, int] = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}


class PodyardError(Exception):
    """An expected failure: says what is wrong, and why, in words that a user can act on.

    `details` are google.rpc detail messages as JSON objects, each with its `@type`.
    """

    def __init__(self, code: Code, message: str, details: Sequence[Mapping[str, object]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(dict(detail) for detail in details)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.code, self.message, self.details))


def invalid(message: str, field: str | None = None) -> PodyardError:
    """INVALID_ARGUMENT; with `field`, a google.rpc.BadRequest detail names it."""
    if field is None:
        return PodyardError(Code.INVALID_ARGUMENT, message)
    violation = {"field": field, "description": message}
    return PodyardError(
        Code.INVALID_ARGUMENT,
        message,
        [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}],
    )


def not_found(resource: str) -> PodyardError:
    return PodyardError(Code.NOT_FOUND, f"Resource '{resource}' was not found")


def failed_precondition(message: str) -> PodyardError:
    return PodyardError(Code.FAILED_PRECONDITION, message)
