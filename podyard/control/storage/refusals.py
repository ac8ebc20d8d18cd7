"""Errors in Cloud Storage's words, each with the reason that its clients read."""

from __future__ import annotations

from podyard.base.errors import Code, ErrorInfo, PodyardError
from podyard.domain.principal import PERMISSIONS, Principal

DOMAIN = "storage.googleapis.com"
CONDITION_NOT_MET, NOT_MODIFIED, CONFLICT, NOT_FOUND, FORBIDDEN = (
    "CONDITION_NOT_MET", "NOT_MODIFIED", "CONFLICT", "NOT_FOUND", "FORBIDDEN",
)  # fmt: skip


def refuse(code: Code, message: str, reason: str) -> PodyardError:
    return PodyardError(code, message, [ErrorInfo(reason, DOMAIN, {})])


def reason_of(error: PodyardError) -> str | None:
    """The reason of an error of this room; None for other errors."""
    return next((detail.reason for detail in error.details if isinstance(detail, ErrorInfo)), None)


def bucket_not_found() -> PodyardError:
    return refuse(Code.NOT_FOUND, "The specified bucket does not exist.", NOT_FOUND)


def object_not_found(bucket: str, name: str) -> PodyardError:
    return refuse(Code.NOT_FOUND, f"No such object: {bucket}/{name}", NOT_FOUND)


def condition_not_met() -> PodyardError:
    text = "At least one of the pre-conditions you specified did not hold."
    return refuse(Code.FAILED_PRECONDITION, text, CONDITION_NOT_MET)


def not_modified() -> PodyardError:
    return refuse(Code.FAILED_PRECONDITION, "Not Modified", NOT_MODIFIED)


def conflict(message: str) -> PodyardError:
    return refuse(Code.ALREADY_EXISTS, message, CONFLICT)


def require(principal: Principal, permission: str, project: str, what: str) -> None:
    """`what`: bucket, object or project, as the message says it."""
    assert permission in PERMISSIONS, permission
    if not principal.may(permission, project):
        text = (
            f"{principal.email} does not have {permission} access to the Google Cloud "
            f"{what}. Permission "
            f"'{permission}' denied on resource (or it may not exist)."
        )
        raise refuse(Code.PERMISSION_DENIED, text, FORBIDDEN)
