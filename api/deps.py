"""What every route needs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, NotRequired, TypeVar

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from starlette.responses import Response
from typing_extensions import TypedDict, override

from podyard.base.clock import PlatformTime
from podyard.base.errors import BadRequest, Code, FieldViolation, PodyardError, invalid
from podyard.http.context import Platform, platform, principal, read, write

__all__ = ["Platform", "platform", "principal", "read", "write"]

T = TypeVar("T")
Message = TypeVar("Message", bound=BaseModel)

PAGE_SIZE_DEFAULT = 500  # Ray, SkyPilot and Terraform read one page only: it must hold what they may have
PAGE_SIZE_MAX = 1000
PAGE_SIGNATURE_CHARACTERS = 16  # 64 bits: guessing one takes longer than any list is worth
NUMBER_MAX = 2**31 - 1  # of the query's numbers: the databases' integers hold it, and nothing is counted so far
OWN_PATHS = "/podyard/v1/"
_PAGING_SNAKE = {"pageSize": "page_size", "pageToken": "page_token"}  # both spellings are read
_CREDENTIALS = ("key", "access_token", "oauth_token")  # of the query: every path takes them
_NUMBER = re.compile(r"[0-9]{1,19}")


class Route(APIRoute):
    """A route of our own REST. The OpenAPI document is made from what stands at its function: `body: Annotated[Body,
    Message]`, the type of the answer, `openapi_extra=asks(...)` and `responses=errors(...)`.

    The type of the answer is for the document and mypy only: an answer goes out as it was made, and is not checked
    against its type at run time. A query parameter that `asks` does not name is refused below /podyard/v1: one that is
    misspelt would else be a wider answer. Google's paths have Google's own rules.
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
        known = {*asked, *_CREDENTIALS, *(snake for name, snake in _PAGING_SNAKE.items() if name in asked)}

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
    """What is sent to Podyard's own API: camelCase, and nothing that it does not know."""

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
    {"name": "pageToken", "description": "The nextPageToken of the page before.", "schema": {"type": "string"}},
)


def asks(*queries: Query) -> dict[str, Any]:
    """`openapi_extra` of a route that reads these query parameters."""
    return {"parameters": [{**query, "in": "query"} for query in queries]}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route with these error statuses, in addition to those of every route (openapi.py)."""
    return {status: {} for status in statuses}


async def _json(request: Request) -> Any:
    return parse_json(await request.body())


async def _mended_json(request: Request) -> Any:
    return parse_json(await request.body(), mend=True)


# The JSON of the body; its message type is in the annotation, and `parse` reads it after the permission check.
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


def parse_json(data: bytes, *, mend: bool = False) -> Any:
    """The JSON of a request's body (RFC 8259); an empty body is an empty object. Every number is finite, and every text
    can be stored; `mend` puts U+FFFD in the place of what cannot, instead of refusing it."""
    if not data.strip():
        return {}
    try:
        text = data.decode("utf-8-sig")
        found = json.loads(text, parse_constant=_finite, parse_float=_finite)
        # Only an escape can stand for what cannot be stored.
        return _storable(found, mend) if "\\u" in text else found
    except (ValueError, RecursionError) as error:
        raise invalid(f"Invalid JSON payload received: {error}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _storable(value: Any, mend: bool) -> Any:
    """`value` without NUL, which PostgreSQL cannot store, and halves of surrogate pairs, which UTF-8 cannot write."""
    if isinstance(value, str):
        mended = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
        if mended != value and not mend:
            raise ValueError("a string contains NUL or an unpaired surrogate")
        return mended
    if isinstance(value, list):
        return [_storable(item, mend) for item in value]
    if isinstance(value, dict):
        return {_storable(key, mend): _storable(item, mend) for key, item in value.items()}
    return value


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
    """What the page token stands for: the name that the page before ended with."""
    return read_page_token(request.query_params.get("pageToken") or request.query_params.get("page_token"))


def read_page_token(token: str | None) -> str | None:
    if not token:
        return None
    try:
        return base64.b64decode(token.encode(), b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise foreign_token() from None


def foreign_token() -> PodyardError:
    return invalid("invalid pageToken: use the nextPageToken of this list", "pageToken")


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


def page_token(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode()


def page_token_of(request: Request, listed: Sequence[str], after: str) -> str:
    """A token that continues only the list that it was made for: `listed` says which one, and how it was asked for."""
    return page_token(f"{_signature(request, listed, after)}{after}")


def read_page_token_of(request: Request, listed: Sequence[str], token: str | None) -> str | None:
    """What a token of `page_token_of` stands for; raises INVALID_ARGUMENT for any other token."""
    text = read_page_token(token)
    if text is None:
        return None
    signature, after = text[:PAGE_SIGNATURE_CHARACTERS], text[PAGE_SIGNATURE_CHARACTERS:]
    if not hmac.compare_digest(signature.encode(), _signature(request, listed, after).encode()):
        raise foreign_token()
    return after


def _signature(request: Request, listed: Sequence[str], after: str) -> str:
    state = request.app.state
    if not hasattr(state, "page_key"):
        # The yard's own secret: tokens outlive a restart, and nobody outside can make one.
        state.page_key = platform(request).settings.token_path.read_bytes()
    text = json.dumps([*listed, after]).encode()
    return hmac.new(state.page_key, text, hashlib.sha256).hexdigest()[:PAGE_SIGNATURE_CHARACTERS]


def next_page(token: str | None) -> NextPage:
    return {} if token is None else {"nextPageToken": token}


def page_of(request: Request, items: Sequence[T], name: Callable[[T], str]) -> tuple[list[T], str | None]:
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
