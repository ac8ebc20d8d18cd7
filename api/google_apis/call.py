"""One call of these APIs: its names, its query and its body, and pages of what it lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from podyard.api import deps
from podyard.api.google_apis.schema import ApiMethod
from podyard.api.page_tokens import PAGE_SIZE_MAX, page_token_of, read_page_token_of
from podyard.api.wire.reader import SHARED_PARAMETERS
from podyard.base.errors import invalid
from podyard.base.spelling import snake_case
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal

T = TypeVar("T")
_NUMBER_DIGITS_MAX = 9


@dataclasses.dataclass(frozen=True, slots=True)
class ApiCall:
    """`names`: what the path holds; `project`: the one among them, "" without one; `query`: the
    values of each parameter; `body` by the names of the table."""

    request: Request
    method: ApiMethod
    caller: Principal
    names: Mapping[str, str]
    project: str
    query: Mapping[str, Sequence[str]]
    body: Mapping[str, Any]

    @property
    def resource(self) -> str:
        """The name of the resource in the path."""
        return next(iter(self.names.values()))

    def read(self, unit: Callable[[UnitOfWork], T]) -> T:
        return deps.read(self.request, unit)

    def write(self, unit: Callable[[UnitOfWork], T]) -> T:
        return deps.write(self.request, unit)

    def value(self, name: str) -> str:
        """A parameter of the query; "" when it is not there."""
        values = self.query.get(name, ())
        return values[-1] if values else ""

    def page(
        self,
        items: Sequence[T],
        name: Callable[[T], str],
        page_size: int | None = None,
        token: str | None = None,
    ) -> tuple[list[T], str]:
        """One page of `items`, which are in the order of their names, and the token of the next, or
        ""."""
        size = self.page_size() if page_size is None else page_size
        after = self.after(self.value("pageToken") if token is None else token)
        rest = [item for item in items if after is None or name(item) > after]
        page = rest[:size]
        more = len(rest) > size
        return page, self.token(name(page[-1])) if more and page else ""

    def page_size(self) -> int:
        return _size(self.value("pageSize"))

    def after(self, token: str) -> str | None:
        return read_page_token_of(self.request, self._list_of(), token or None)

    def token(self, after: str) -> str:
        return page_token_of(self.request, self._list_of(), after)

    def _list_of(self) -> list[str]:
        """Return what a page token is bound to: the list, its filter and order, and the caller."""
        query = [
            f"{key}={value}"
            for key in sorted(self.query)
            if key not in ("pageToken", "pageSize", *SHARED_PARAMETERS)
            for value in self.query[key]
        ]
        body = [
            f"{key}={self.body[key]}"
            for key in sorted(self.body)
            if key not in ("pageToken", "pageSize")
        ]
        return [
            self.method.key,
            *self.names.values(),
            *query,
            *body,
            self.caller.email,
        ]


def bind_query(method: ApiMethod, request: Request) -> dict[str, list[str]]:
    """The query by the names of the table. Raises INVALID_ARGUMENT for any other parameter."""
    names = {word: name for name in method.query for word in (snake_case(name), name)}
    values: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        if name in SHARED_PARAMETERS:
            continue
        field = names.get(name) or names.get(f"{name}[]")
        if field is None:
            raise invalid(
                f'Invalid JSON payload received. Unknown name "{name[:80]}": Cannot bind query '
                f"parameter. Field '{name[:80]}' could not be found in request message.",
                name[:80],
            )
        values.setdefault(field.removesuffix("[]"), []).append(value)
    return values


def _size(text: str) -> int:
    if text and (not text.isdecimal() or len(text) > _NUMBER_DIGITS_MAX):
        raise invalid(f"pageSize {text[:40]!r} is not a number", "pageSize")
    return min(int(text or 0) or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
