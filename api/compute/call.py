"""One call of a method of Compute Engine: authorised, then read, then carried out.

Permission comes before everything else, so that a caller who may not see a resource learns nothing
of it. Every list is cut by the database where its rows are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from podyard.api.compute.schema import ComputeMethod, list_kind, vocabulary
from podyard.api.json_body import parse_json
from podyard.api.wire import reader, selector
from podyard.api.wire.row_lists import ListRequest, RowList, read_page
from podyard.base.errors import invalid
from podyard.control.platform import idempotency, operations, rate_quota
from podyard.db.access import projects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.images import PUBLIC_PROJECTS
from podyard.domain.compute.place import WHOLE_PROJECT, ComputePlace, PlaceLevel, link
from podyard.domain.compute.refusal import field_required, resource_not_found
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.lists import filters
from podyard.domain.lists.pages import Order
from podyard.domain.operation import Operation
from podyard.domain.principal import Principal
from podyard.domain.project import Project
from podyard.http import context

T = TypeVar("T")

PAGE_SIZE = 500  # Google's default and its most
_ORDERS = {"": Order.NAME, **{order.value: order for order in (Order.NAME, Order.NEWEST)}}

Answer = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ComputeCall:
    """`names`: the ids of the path by their placeholders. `query` and `body`: in the canonical
    form, without what is unset."""

    request: Request
    method: ComputeMethod
    names: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def project(self) -> str:
        return self.names.get("project", "")

    @property
    def id(self) -> str:
        """The last id of the path: of the resource that it names."""
        return self.names[self.method.placeholders[-1]]

    @property
    def place(self) -> ComputePlace:
        """The place that the path names."""
        for placeholder, level in (("zone", PlaceLevel.ZONE), ("region", PlaceLevel.REGION)):
            if placeholder in self.names:
                return ComputePlace(level, self.names[placeholder])
        return WHOLE_PROJECT

    @property
    def path(self) -> str:
        """`projects/P/...`, as it was asked for."""
        return self.method.path.format(**self.names)

    @property
    def is_aggregated(self) -> bool:
        return self.method.answer.endswith("{}")

    @property
    def principal(self) -> Principal:
        return context.principal(self.request)

    @property
    def fleet(self) -> Fleet:
        return context.platform(self.request).fleet

    def require(self, field: str) -> Any:
        """A field of the body; raises `required` where it is unset or empty."""
        value = self.body.get(field)
        if value in (None, "", [], {}):
            raise field_required(field)
        return value

    def read(self, work: Callable[[UnitOfWork], T]) -> T:
        """Return what `work` finds in a project that is there."""

        def unit(uow: UnitOfWork) -> T:
            if not is_public(self.method, self.project):
                self.project_row(uow)
            return work(uow)

        return context.read(self.request, unit)

    def project_row(self, uow: UnitOfWork) -> Project:
        row = projects.find(uow, self.project)
        if row is None:
            raise resource_not_found(f"projects/{self.project}")
        return row

    def begin(self, work: Callable[[UnitOfWork], Operation]) -> Change:
        """A change that begins an operation, which is the answer. With a requestId: it is begun
        once, however often it is asked for."""
        request_id: str = self.query.get("requestId", "")

        def once(uow: UnitOfWork) -> Operation:
            query = {name: value for name, value in self.query.items() if name != "requestId"}
            request = {"path": self.path, "query": query, "body": self.body}
            method = f"compute.{self.method.id}"
            operation_id = idempotency.once(
                uow,
                self.principal,
                self.project,
                method,
                request_id,
                request,
                lambda: work(uow).operation_id,
            )
            return operations.of_id(uow, operation_id)

        def unit(uow: UnitOfWork) -> Operation:
            self.project_row(uow)
            return once(uow) if request_id else work(uow)

        return Change(unit)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A change in one unit of work, which has not happened yet. None: there is no operation, and
    the answer is empty."""

    unit: Callable[[UnitOfWork], Operation | None]


Handler = Callable[[ComputeCall], Answer] | Callable[[ComputeCall], Change]


def page(call: ComputeCall, rows: RowList[T]) -> Answer:
    """The page that a call of `list` or `aggregatedList` asks for."""
    text = call.query.get("filter", "")
    wanted = ListRequest(
        [call.method.id, call.path, call.principal.email, text, call.query.get("orderBy", "")],
        filters.parse(text, regular=True),
        _order(call, rows.default),
        _size(call),
        call.query.get("pageToken"),
    )

    def read(uow: UnitOfWork) -> Answer:
        cut = read_page(uow, call.request, wanted, rows)
        items = [(rows.place(row), shown) for row, shown in cut.items]
        return _list_answer(call, items, cut.token)

    return call.read(read)


def _list_answer(
    call: ComputeCall, items: Sequence[tuple[ComputePlace, Answer]], token: str | None
) -> Answer:
    kind = list_kind(call.method).replace("sListResponse", "List")
    answer: Answer = {
        "kind": f"compute#{kind[0].lower()}{kind[1:]}",
        "id": call.path,
        "selfLink": link(call.path),
    }
    if call.is_aggregated:
        collection = call.path.rpartition("/")[2]
        scopes = dict[str, dict[str, list[Answer]]]()
        for place, item in items:
            scopes.setdefault(place.path, {collection: []})[collection].append(item)
        answer |= {"items": scopes}  # clients read it, also where there is nothing
    elif items:
        # As googleapis.com lists: without `items` when there are none.
        answer |= {"items": [item for _, item in items]}
    return answer if token is None else {**answer, "nextPageToken": token}


def _order(call: ComputeCall, default: Order) -> Order:
    text: str = call.query.get("orderBy", "")
    if text not in _ORDERS:
        names = " or ".join(repr(name) for name in _ORDERS if name)
        raise invalid(f"Invalid value for field 'orderBy': '{text}'. Use {names}", "orderBy")
    if call.is_aggregated and not text:
        return Order.PLACE
    return _ORDERS[text] if text else default


def _size(call: ComputeCall) -> int:
    size: int = call.query.get("maxResults", 0) or PAGE_SIZE
    if not 0 < size <= PAGE_SIZE:
        raise invalid(
            f"Invalid value for field 'maxResults': '{size}'. Must be from 0 to {PAGE_SIZE}",
            "maxResults",
        )
    return size


def is_public(method: ComputeMethod, project: str) -> bool:
    """Return whether everybody may read it: the images of Google's projects."""
    return method.collection == "images" and project in PUBLIC_PROJECTS


def read_call(
    request: Request, method: ComputeMethod, names: Mapping[str, str], content: bytes
) -> ComputeCall:
    """Authorises and reads a request; raises PERMISSION_DENIED or INVALID_ARGUMENT."""
    project = names.get("project", "")
    path = method.path.format(**names)
    if not is_public(method, project):
        context.principal(request).require(method.permission, project, path)
    _check_place(context.platform(request).fleet, project, names)
    rate_quota.check(context.platform(request), project, method.id)
    words = vocabulary()
    query = reader.read_query(words, method.query, request.query_params.multi_items())
    body: dict[str, Any] = {}
    if method.body:
        body = reader.read(words, method.body, parse_json(content or b"{}"))
    return ComputeCall(request, method, names, query, body)


def _check_place(fleet: Fleet, project: str, names: Mapping[str, str]) -> None:
    """Raise `notFound` for a zone or a region that the fleet has not."""
    zone, region = names.get("zone"), names.get("region")
    if zone is not None and zone not in fleet.zones:
        raise resource_not_found(f"projects/{project}/zones/{zone}")
    if region is not None and region not in map(region_of, fleet.zones):
        raise resource_not_found(f"projects/{project}/regions/{region}")


def selection_of(call: ComputeCall) -> selector.Selection:
    """The part of the answer that `fields` asks for; raises INVALID_ARGUMENT."""
    text = call.request.query_params.get("fields", "")
    if not text:
        return {}
    selection = selector.parse(text)
    answer = call.method.answer
    message = list_kind(call.method) if answer.endswith(("[]", "{}")) else answer
    if message:
        selector.check(vocabulary(), message, selection)
    return selection
