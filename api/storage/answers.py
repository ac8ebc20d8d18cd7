"""Errors as Cloud Storage's two APIs spell them, and the parts of requests that both have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import Response

from podyard.base.contents import DISK_FULL, TOO_LARGE
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.storage import refusals
from podyard.control.storage.uploads import DIGEST_MISMATCH
from podyard.domain.stored import Preconditions
from podyard.http.context import principal

GENERATION_MAX = 2**63 - 1
CANCELLED_STATUS = 499  # what Cloud Storage answers to a cancelled upload
# (HTTP status, reason, the XML API's code) of errors that have a reason.
_KNOWN: Mapping[str, tuple[int, str, str]] = {
    refusals.CONDITION_NOT_MET: (412, "conditionNotMet", "PreconditionFailed"),
    refusals.NOT_MODIFIED: (304, "notModified", "NotModified"),
    refusals.CONFLICT: (409, "conflict", "BucketAlreadyExists"),
    refusals.NOT_FOUND: (404, "notFound", "NoSuchKey"),
    refusals.FORBIDDEN: (403, "forbidden", "AccessDenied"),
    TOO_LARGE: (413, "uploadTooLarge", "EntityTooLarge"),
    DISK_FULL: (507, "insufficientStorage", "InsufficientStorage"),
    DIGEST_MISMATCH: (400, "invalid", "BadDigest"),
}
_OTHERS: Mapping[Code, tuple[str, str]] = {
    Code.INVALID_ARGUMENT: ("invalid", "InvalidArgument"),
    Code.OUT_OF_RANGE: ("requestedRangeNotSatisfiable", "InvalidRange"),
    Code.NOT_FOUND: ("notFound", "NoSuchBucket"),
    Code.PERMISSION_DENIED: ("forbidden", "AccessDenied"),
    Code.RESOURCE_EXHAUSTED: ("rateLimitExceeded", "SlowDown"),
    Code.UNIMPLEMENTED: ("notImplemented", "NotImplemented"),
    Code.UNAVAILABLE: ("backendError", "ServiceUnavailable"),
    Code.UNAUTHENTICATED: ("authError", "AuthenticationRequired"),
}
_UNSATISFIABLE = 416


def refusal(error: PodyardError) -> tuple[int, str, str]:
    """(HTTP status, the JSON API's reason, the XML API's code)."""
    known = _KNOWN.get(refusals.reason_of(error) or "")
    if known is not None:
        return known
    reason, code = _OTHERS.get(error.code, ("backendError", "InternalError"))
    return (
        (_UNSATISFIABLE if error.code is Code.OUT_OF_RANGE else error.code.http_status),
        reason,
        code,
    )


def json_error(error: PodyardError) -> Response:
    status, reason, _ = refusal(error)
    if status == 304:
        return Response(status_code=status)
    item = {"message": error.message, "domain": "global", "reason": reason}
    body = {
        "error": {
            "code": status,
            "message": error.message,
            "errors": [item],
            "status": error.code.name,
        }
    }
    return answer(body, status)


def xml_error(error: PodyardError) -> Response:
    status, _, code = refusal(error)
    if status == 304:
        return Response(status_code=status)
    if code == "NoSuchKey" and "bucket" in error.message.split():
        code = "NoSuchBucket"
    text = (
        f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code>"
        f"<Message>{escape(error.message)}</Message></Error>"
    )
    return Response(
        text.encode("utf-8", "replace"), status, media_type="application/xml; charset=UTF-8"
    )


def answer(
    body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(
        content, status, headers=dict(headers or {}), media_type="application/json; charset=UTF-8"
    )


def segments(request: Request) -> list[str]:
    """The parts of the path, each as its client meant it: a name may hold an escaped slash. Raises
    INVALID_ARGUMENT for what is not UTF-8."""
    raw: bytes = request.scope["raw_path"].partition(b"?")[0]
    try:
        return [unquote_to_bytes(part).decode() for part in raw.split(b"/")[1:]]
    except UnicodeDecodeError:
        raise invalid("the path is not valid UTF-8") from None


def check_query(request: Request) -> None:
    """Raises INVALID_ARGUMENT for a query that is not UTF-8: it would be another one otherwise."""
    query: bytes = request.scope["query_string"]
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise invalid("the query is not valid UTF-8") from None


def own_address(request: Request) -> str:
    """Return how the client reaches this server, with the credential if that is in the path: links
    lead back here."""
    host = request.headers.get("host", "")
    scheme = request.headers.get("x-forwarded-proto", "http")
    return f"{scheme}://{host}{request.scope['state'].get('capability_prefix', '')}"


def quote_name(name: str) -> str:
    return quote(name, safe="")


def preconditions(request: Request, of: str = "") -> Preconditions:
    """Those of the query; `of`: `Source` for those of what is copied."""
    return Preconditions(
        generation=whole_number(request, f"if{of}GenerationMatch"),
        not_generation=whole_number(request, f"if{of}GenerationNotMatch"),
        metageneration=whole_number(request, f"if{of}MetagenerationMatch"),
        not_metageneration=whole_number(request, f"if{of}MetagenerationNotMatch"),
    )


def whole_number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return None if text in (None, "") else number(text, name)


def number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > GENERATION_MAX:
        raise invalid(f"Invalid value '{text[:40]}' of {name}: it must be a whole number", name)
    return int(text)


def flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def caller_project(request: Request) -> str:
    """The project of the caller's credential if it has only one; else the query or a header must
    name it."""
    named = request.query_params.get("project") or request.headers.get("x-goog-project-id")
    if named and named not in _NO_PROJECTS:
        return named
    roles = [project for project in principal(request).roles if project != "*"]
    if len(roles) == 1:
        return roles[0]
    return "demo" if named in _NO_PROJECTS or not roles else _missing()


_NO_PROJECTS = frozenset({"<none>", "_"})  # what clients send that know of no project


def _missing() -> str:
    raise invalid("Required parameter: project", "project")
