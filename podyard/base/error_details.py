"""The details of errors as JSON: messages of google.rpc, each with its type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from podyard.base.errors import BadRequest, Detail, ErrorInfo, FieldViolation, QuotaFailure

_PREFIX = "type.googleapis.com/google.rpc."


def to_json(detail: Detail) -> dict[str, Any]:
    if isinstance(detail, ErrorInfo):
        body: dict[str, Any] = {
            "reason": detail.reason,
            "domain": detail.domain,
            "metadata": dict(detail.metadata),
        }
    elif isinstance(detail, QuotaFailure):
        body = {"violations": [{"subject": detail.subject, "description": detail.description}]}
    else:
        body = {
            "fieldViolations": [
                {"field": one.field, "description": one.description} for one in detail.violations
            ]
        }
    return {"@type": _PREFIX + type(detail).__name__, **body}


def of_json(details: Iterable[Mapping[str, Any]]) -> Iterator[Detail]:
    """The details that are known here; others are left out."""
    for detail in details:
        kind = str(detail.get("@type")).removeprefix(_PREFIX)
        if kind == "ErrorInfo":
            yield ErrorInfo(detail["reason"], detail["domain"], detail["metadata"])
        elif kind == "QuotaFailure":
            yield from (
                QuotaFailure(one["subject"], one["description"]) for one in detail["violations"]
            )
        elif kind == "BadRequest":
            named = (
                FieldViolation(one["field"], one["description"])
                for one in detail["fieldViolations"]
            )
            yield BadRequest(tuple(named))
