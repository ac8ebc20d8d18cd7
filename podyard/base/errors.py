"""Expected failures.

Two kinds of failure are never mixed: an expected one is a `PodyardError` with a google.rpc code and
a reason;
a broken invariant is an `AssertionError` and stops the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from podyard.base.spelling import camel_case


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


class FieldViolation(NamedTuple):
    """`field`: its path, as JSON spells it."""

    field: str
    description: str


class BadRequest(NamedTuple):
    """google.rpc.BadRequest"""

    violations: tuple[FieldViolation, ...]


class QuotaFailure(NamedTuple):
    """google.rpc.QuotaFailure, with one violation."""

    subject: str
    description: str


class ErrorInfo(NamedTuple):
    """google.rpc.ErrorInfo"""

    reason: str
    domain: str
    metadata: Mapping[str, str]


Detail = BadRequest | QuotaFailure | ErrorInfo


class PodyardError(Exception):
    """An expected failure: says what is wrong, and why, in words that a user can act on."""

    def __init__(self, code: Code, message: str, details: Sequence[Detail] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(details)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.code, self.message, self.details))


def invalid(message: str, field: str | None = None) -> PodyardError:
    """INVALID_ARGUMENT; with `field`, as the request spells it, a detail names it."""
    details = [] if field is None else [BadRequest((FieldViolation(field, message),))]
    return PodyardError(Code.INVALID_ARGUMENT, message, details)


def invalid_field(message: str, field: str) -> PodyardError:
    """INVALID_ARGUMENT about a field of a record: `max_failures`, which a request spells
    maxFailures."""
    return invalid(message, camel_case(field))


def not_found(resource: str) -> PodyardError:
    return PodyardError(Code.NOT_FOUND, f"Resource '{resource}' was not found")


def failed_precondition(message: str) -> PodyardError:
    return PodyardError(Code.FAILED_PRECONDITION, message)
