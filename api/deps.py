"""Dependencies of every route."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, NotRequired, TypeVar

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from starlette.responses import Response
from typing_extensions import TypedDict, override

from podyard.api.json_body import parse_json
from podyard.api.page_tokens import (
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    foreign_token,
    page_token,
    page_token_of,
    read_page_token,
    read_page_token_of,
)
from podyard.base.clock import PlatformTime
from podyard.base.errors import BadRequest, Code, FieldViolation, PodyardError, invalid
from podyard.domain.lists.pages import Order, RowMark, RowQuery, cut_rows
from podyard.http.context import Platform, platform, principal, read, write

__all__ = [
    "Platform", "foreign_token", "page_token", "page_token_of", "platform", "principal", "read",
    "read_page_token_of",
    "write",
]  # fmt: skip

T = TypeVar("T")
Message = TypeVar("Message", bound=BaseModel)

# of the query's numbers: the databases' integers hold it, and nothing is counted so far
NUMBER_MAX = 2**31 - 1
OWN_PATHS = "/podyard/v1/"
_PAGING_SNAKE = {"pageSize": "page_size", "pageToken": "page_token"}  # both spellings are read
_CREDENTIALS = ("key", "access_token", "oauth_token")  # of the query: every path takes them
_NUMBER = re.compile(r"[0-9]{1,19}")


class Route(APIRoute):
    """A route of our own REST. The OpenAPI document is made from what stands at its function:
    `body: Annotated[Body, Message]`, the type of the answer, `openapi_extra=asks(...)` and
    `responses=errors(...)`.

    The type of the answer is for the document and mypy only: an answer goes out as it was made, and
    is not checked against its type at run time. A query parameter that `asks` does not name is
    refused below /podyard/v1: one that is misspelt would else be a wider answer. Google's paths
    have Google's own rules.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        answered = endpoint.__annotations__.get("return")
        if answered not in _RESPONSES:
            options["response_model"] = dict[str, Any]
        super().__init__(path, endpoint, **options)

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if not self.path.startswith(OWN_PATHS):
            return handle
        asked = [query["name"] for query in (self.openapi_extra or {}).get("parameters", ())]
        known = {
            *asked,
            *_CREDENTIALS,
            *(snake for name, snake in _PAGING_SNAKE.items() if name in asked),
        }

        async def check(request: Request) -> Response:
            if unknown := next((name for name in request.query_params if name not in known), None):
                use = f"use {', '.join(asked)}" if asked else "there are none here"
                raise invalid(f"unknown query parameter {unknown[:40]!r}: {use}", unknown[:40])
            return await handle(request)

        return check


_RESPONSES = frozenset({"Response", "JSONResponse", Response})


# A moment as RFC 3339 writes it in UTC.
Timestamp = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class Empty(TypedDict):
    """Nothing more to say."""


class Asked(BaseModel):
    """A request to Podyard's own API: camelCase, and nothing that it does not know."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class NextPage(TypedDict):
    nextPageToken: NotRequired[str]


class Query(TypedDict):
    """A query parameter, as OpenAPI writes it."""

    name: str
    description: str
    schema: dict[str, Any]
    required: NotRequired[bool]


PAGING: tuple[Query, ...] = (
    {
        "name": "pageSize",
        "description": "The most that one page may hold.",
        "schema": {"type": "integer", "minimum": 0},
    },
    {
        "name": "pageToken",
        "description": "The nextPageToken of the page before.",
        "schema": {"type": "string"},
    },
)


def asks(*queries: Query) -> dict[str, Any]:
    """`openapi_extra` of a route that reads these query parameters."""
    return {"parameters": [{**query, "in": "query"} for query in queries]}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route with these error statuses, in addition to those of every route
    (openapi.py)."""
    return {status: {} for status in statuses}


async def _json(request: Request) -> Any:
    return parse_json(await request.body())


async def _mended_json(request: Request) -> Any:
    return parse_json(await request.body(), mend=True)


# The JSON of the body; its message type is in the annotation, and `parse` reads it after the
# permission check.
Body = Annotated[Any, Depends(_json)]
# What programs have printed, that nobody can send again in a better form.
MendedBody = Annotated[Any, Depends(_mended_json)]


def parse(message: type[Message], body: Any) -> Message:
    """The body as `message`; INVALID_ARGUMENT names every field that is wrong."""
    if not isinstance(body, dict):
        raise invalid("Invalid JSON payload received: the body must be a JSON object")
    try:
        return message.model_validate(body)
    except ValidationError as error:
        raise _violations(error) from None


def moment(text: str | None, field: str) -> PlatformTime | None:
    """The time that a field of a message says; INVALID_ARGUMENT names the field."""
    try:
        return None if text is None else PlatformTime.from_rfc3339(text)
    except ValueError as error:
        raise invalid(str(error), field) from None


def _violations(error: ValidationError) -> PodyardError:
    violations = []
    for problem in error.errors(include_url=False):
        field = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            text = f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.'
        else:
            text = f"Invalid value at '{field}': {problem['msg']}"
        violations.append(FieldViolation(field, text))
    text = "\n".join(violation.description for violation in violations)
    return PodyardError(Code.INVALID_ARGUMENT, text, [BadRequest(tuple(violations))])


def number(request: Request, name: str, default: int, other_name: str = "") -> int:
    """A whole number of the query, at least 0; `default` when it is not given."""
    text = request.query_params.get(name, request.query_params.get(other_name, str(default)))
    if not _NUMBER.fullmatch(text):
        raise invalid(f"{name} {text[:40]!r} is not a number", name)
    return min(int(text), NUMBER_MAX)


def page_size(request: Request) -> int:
    return min(number(request, "pageSize", 0, "page_size") or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def page_after(request: Request) -> str | None:
    """Return what the page token stands for: the name that the page before ended with."""
    return read_page_token(
        request.query_params.get("pageToken") or request.query_params.get("page_token")
    )


def newest_page(
    request: Request,
    listed: Sequence[str],
    read_rows: Callable[[RowQuery], Sequence[T]],
    mark: Callable[[T], RowMark],
) -> tuple[Sequence[T], str | None]:
    """One page of rows that the database cuts, the newest first, and the token of the next.
    `listed`: which list it is."""
    whose = [request.scope["route"].path, *listed, principal(request).email]
    token = request.query_params.get("pageToken") or request.query_params.get("page_token")
    text = read_page_token_of(request, whose, token)
    value, _, last = (text or "").partition("\n")
    after = None if text is None else RowMark(value, last)
    query = RowQuery(Order.NEWEST, page_size(request), after)
    cut = cut_rows(query, read_rows, lambda row, _order: mark(row))
    if cut.after is None:
        return cut.rows, None
    text = f"{cut.after.value}\n{cut.after.key}"
    return cut.rows, page_token_of(request, whose, text)


def page_after_number(request: Request) -> int:
    """The same where pages go by numbers; 0 before the first page."""
    text = page_after(request) or "0"
    if not _NUMBER.fullmatch(text) or int(text) > NUMBER_MAX:
        raise foreign_token()
    return int(text)


def flag(request: Request, name: str) -> bool:
    """A query parameter that is true or false; false when it is left out."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise invalid(f"{name} must be true or false, got {text[:20]!r}", name)
    return text == "true"


def next_page(token: str | None) -> NextPage:
    return {} if token is None else {"nextPageToken": token}


def page_of(
    request: Request, items: Sequence[T], name: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """One page of `items` (in a stable order) and the token of the next."""
    after = page_after(request)
    names = [name(item) for item in items]
    if after is not None and after not in names:
        raise invalid(
            "pageToken points to a resource that is gone; list again from the start", "pageToken"
        )
    start = 0 if after is None else names.index(after) + 1
    size = page_size(request)
    page = list(items[start : start + size])
    more = start + size < len(items)
    return page, page_token(name(page[-1])) if more else None
