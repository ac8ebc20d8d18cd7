"""What every route needs."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from podyard.base.errors import Code, PodyardError, invalid
from podyard.http.context import Platform, platform, principal, read, write

__all__ = [
    "Platform",
    "page_after",
    "page_size",
    "page_token",
    "paged",
    "parse",
    "parse_json",
    "platform",
    "principal",
    "read",
    "write",
]

T = TypeVar("T")
Message = TypeVar("Message", bound=BaseModel)

PAGE_SIZE_DEFAULT = 500  # Ray, SkyPilot and Terraform read one page only: it must hold what they may have
PAGE_SIZE_MAX = 1000


def parse(message: type[Message], body: Any) -> Message:
    """The body as `message`; INVALID_ARGUMENT names every field that is wrong."""
    if not isinstance(body, dict):
        raise invalid("Invalid JSON payload received: the body must be a JSON object")
    try:
        return message.model_validate(body)
    except ValidationError as error:
        raise _violations(error) from None


def parse_json(data: bytes) -> Any:
    """The JSON of a request's body; an empty body is an empty object."""
    if not data.strip():
        return {}
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise invalid(f"Invalid JSON payload received: {error}") from None


def _violations(error: ValidationError) -> PodyardError:
    violations = []
    for problem in error.errors(include_url=False):
        field = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            text = f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.'
        else:
            text = f"Invalid value at '{field}': {problem['msg']}"
        violations.append({"field": field, "description": text})
    return PodyardError(
        Code.INVALID_ARGUMENT,
        "\n".join(violation["description"] for violation in violations),
        [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}],
    )


def page_size(request: Request) -> int:
    text = request.query_params.get("pageSize") or request.query_params.get("page_size") or "0"
    if not text.isdigit():
        raise invalid(f"pageSize {text!r} is not a number", "pageSize")
    return min(int(text) or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def page_after(request: Request) -> str | None:
    """What the page token stands for: the name that the page before ended with."""
    token = request.query_params.get("pageToken") or request.query_params.get("page_token")
    if not token:
        return None
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (ValueError, binascii.Error):
        raise invalid("pageToken is not one that this server gave", "pageToken") from None


def page_token(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode()


def paged(request: Request, items: Sequence[T], name: Callable[[T], str]) -> tuple[list[T], str | None]:
    """One page of `items` (in a stable order) and the token of the next."""
    after = page_after(request)
    names = [name(item) for item in items]
    if after is not None and after not in names:
        raise invalid("pageToken points to a resource that is gone; list again from the start", "pageToken")
    start = 0 if after is None else names.index(after) + 1
    size = page_size(request)
    page = list(items[start : start + size])
    more = start + size < len(items)
    return page, page_token(name(page[-1])) if more else None
