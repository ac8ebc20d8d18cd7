"""One call of a method of the Cloud TPU API, whichever way it came: authorised, then read, then
carried out.

Permission comes before everything else, so that who may not see a resource learns nothing of it
(AIP-211).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from podyard.api import page_tokens
from podyard.api.json_body import parse_json
from podyard.api.tpu import filters, reader
from podyard.api.tpu.schema import Method, messages, vocabulary
from podyard.api.wire import reader as wire
from podyard.base.errors import invalid
from podyard.control.access import identity
from podyard.control.platform import idempotency, rate_quota
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fault import FaultRule
from podyard.domain.fleet import Fleet
from podyard.domain.operation import Operation
from podyard.domain.principal import Principal
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.http import context

T = TypeVar("T")

ANSWERS_MAX = 4096  # of a few KB each; nodes that are polled are far fewer


class Answers:
    """Answers that were made before, by the version and all data that they were made from."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], bytes] = {}

    def find(self, key: tuple[object, ...]) -> bytes | None:
        return self._made.get(key)

    def keep(self, key: tuple[object, ...], answer: Mapping[str, Any]) -> None:
        if len(self._made) >= ANSWERS_MAX:
            self._made.clear()
        self._made[key] = render(answer)


def render(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=False).encode()


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """`zone` is None for `locations/-`; `id` is the member that the path names; `fields` are the
    request's other
    fields in the canonical form, from the query and the body."""

    request: Request
    method: Method
    version: str
    project: str
    zone: str | None
    id: str
    fields: Mapping[str, Any]

    @property
    def answers(self) -> Answers:
        found: Answers = self.request.app.state.answers
        return found

    @property
    def principal(self) -> Principal:
        return context.principal(self.request)

    @property
    def fleet(self) -> Fleet:
        return context.platform(self.request).fleet

    @property
    def faults(self) -> Sequence[FaultRule]:
        """The fault rules for what this call shows."""
        found: Sequence[FaultRule] = self.request.scope["state"].get("faults", ())
        return found

    @property
    def place(self) -> tuple[str, str]:
        """Project and zone; `-` is refused where one zone is needed."""
        if self.zone is None:
            raise invalid(
                f"{self.method.path_field} must name one location: `-` is for lists only",
                "location",
            )
        return self.project, self.zone

    def type_named(self, name: str) -> AcceleratorType:
        """The type called `name`, refused in the words of the call's zone."""
        return self.fleet.type_named(self.place[1], name)

    @property
    def body(self) -> Mapping[str, Any]:
        """The message that the body holds (not for `*`, whose fields are in `fields`)."""
        found: Mapping[str, Any] = self.fields.get(self.method.body, {})
        return found

    def read(self, work: Callable[[UnitOfWork], T]) -> tuple[T, int]:
        """Return what `work` finds, and the number of the project. Where faults make it wrong,
        their strokes are counted."""
        unit = context.write if self.faults else context.read
        return unit(
            self.request, lambda uow: (work(uow), identity.project_row(uow, self.project).number)
        )

    def once(
        self, work: Callable[[UnitOfWork], Operation], find: Callable[[UnitOfWork, str], Operation]
    ) -> Callable[[UnitOfWork], tuple[Operation, int]]:
        """A unit that begins an operation, and finds the project's number if that has to be shown.
        With a requestId: it is begun once, however often it is asked for."""
        request_id: str = self.fields.get("requestId", "")

        def begin(uow: UnitOfWork) -> tuple[Operation, int]:
            begun = once(uow) if request_id else work(uow)
            # Only what has ended shows a node, and with it the project's number.
            return begun, identity.project_row(uow, self.project).number if begun.is_done else 0

        def once(uow: UnitOfWork) -> Operation:
            asked = {
                "id": self.id,
                "zone": self.zone,
                **{k: v for k, v in self.fields.items() if k != "requestId"},
            }
            found = idempotency.once(
                uow,
                self.principal,
                self.project,
                self.method.id,
                request_id,
                asked,
                lambda: work(uow).operation_id,
            )
            return find(uow, found)

        return begin

    def page(
        self, collection: str, items: Sequence[Mapping[str, Any]], *, by_name: bool = True
    ) -> dict[str, Any]:
        """A page of `items`: narrowed, sorted and cut as the request says. They are sorted by name,
        but for
        `by_name` False, which says that their own order is a stable one."""
        matches = filters.matcher(self.fields.get("filter", ""))
        chosen = [item for item in items if matches(item)]
        if order := self.fields.get("orderBy"):
            chosen, by_name = filters.order(chosen, order), False
        elif by_name:
            chosen.sort(key=lambda item: str(item["name"]))
        # Another list, or the same one narrowed or sorted otherwise, has other pages (AIP-158).
        asked = [str(self.fields.get(name, "")) for name in ("filter", "orderBy")]
        listed = [self.version, self.method.id, self.project, str(self.zone), *asked]
        start = after(
            chosen,
            page_tokens.read_page_token_of(self.request, listed, self.fields.get("pageToken")),
            by_name=by_name,
        )
        size = page_size(self.fields)
        found: dict[str, Any] = {collection: chosen[start : start + size]}
        if start + size < len(chosen):
            last = str(chosen[start + size - 1]["name"])
            found["nextPageToken"] = page_tokens.page_token_of(self.request, listed, last)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class OperationChange:
    """The change of a method in one unit of work, and its result: neither has happened yet."""

    unit: Callable[[UnitOfWork], Any]
    show: Callable[[Any], dict[str, Any]]


def page_size(fields: Mapping[str, Any]) -> int:
    size: int = fields.get("pageSize", 0)
    if size < 0:
        raise invalid(f"pageSize {size} is negative", "pageSize")
    return min(size or page_tokens.PAGE_SIZE_DEFAULT, page_tokens.PAGE_SIZE_MAX)


def after(items: Sequence[Mapping[str, Any]], last: str | None, *, by_name: bool) -> int:
    """Return where the page behind the item called `last` begins. What was deleted meanwhile does
    no harm to a list that is in the order of its names."""
    if last is None:
        return 0
    for index, item in enumerate(items):
        if item["name"] == last:
            return index + 1
        if by_name and item["name"] > last:
            return index
    if by_name:
        return len(items)
    raise invalid(
        "pageToken points to a resource that is gone; list again from the start", "pageToken"
    )


def read_call(request: Request, method: Method, version: str, body: bytes) -> Call:
    """Authorises and reads a request; raises PERMISSION_DENIED or INVALID_ARGUMENT."""
    parameters = request.path_params
    project, zone, member = (
        parameters["project"],
        parameters.get("zone", ""),
        parameters.get("id", ""),
    )
    name = f"projects/{project}"
    if zone:
        name += f"/locations/{zone}"
    if member:
        name += f"/{method.collection}/{member}"
    context.principal(request).require(method.permission, project, name)
    rate_quota.check(context.platform(request), project, method.id)
    fields = _query(request, method, version)
    if method.body != "-":
        fields |= _body(method, version, parse_json(body))
    return Call(request, method, version, project, None if zone == "-" else zone, member, fields)


def _query(request: Request, method: Method, version: str) -> dict[str, Any]:
    if not request.scope["query_string"]:
        return {}
    known = messages(version)[method.request].by_any_name
    inside = {method.path_field, method.body}
    fields = {
        name: field
        for name, field in known.items()
        if method.body != "*" and field.name not in inside
    }
    return wire.read_query(vocabulary(version), fields, request.query_params.multi_items())


def _body(method: Method, version: str, data: object) -> dict[str, Any]:
    if method.body == "*":
        found = reader.read(version, method.request, data)
        # Some clients repeat what the path says.
        found.pop(method.path_field, None)
        return found
    field = messages(version)[method.request].fields[method.body]
    return {method.body: reader.read(version, field.type, data, field.snake)}
