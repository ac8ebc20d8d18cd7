"""Resources without a life on the wire: what all of their kinds have, and how they are listed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from podyard.api.compute.call import Answer, Change, ComputeCall
from podyard.api.wire.row_lists import RowList
from podyard.control.compute.network import store
from podyard.control.compute.network.quotas import QuotaUse
from podyard.control.platform import operations
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import PlaceLevel, link
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.lists.filters import CREATED, LABELS
from podyard.domain.lists.pages import Order, RowMark, RowQuery, cut_listed, time_mark
from podyard.domain.operation import Operation, OperationVerb

# The fields that the database tests, of every kind that has labels.
FILTERED: Mapping[str, str] = {"name": "name", "creationTimestamp": CREATED, LABELS: LABELS}


def head(resource: ComputeResource) -> Answer:
    """The fields that every kind has."""
    kind = str(resource.kind)
    shown: Answer = {
        "kind": f"compute#{kind}",
        "id": str(resource.number),
        "creationTimestamp": resource.created.rfc3339(),
        "name": resource.name,
        "selfLink": link(resource.path),
    }
    level = resource.where.level
    if level is PlaceLevel.GLOBAL:
        return shown
    place = link(f"projects/{resource.project}/{resource.where.path}")
    return {**shown, level.removesuffix("s"): place}


def mark_of(resource: ComputeResource, order: Order) -> RowMark:
    if order is Order.NEWEST:
        return time_mark(resource.created, resource.resource_key)
    if order is Order.PLACE:
        return RowMark(resource.place, resource.name)
    return RowMark(resource.name, resource.resource_key)


def row_list(
    rows: Callable[[UnitOfWork, RowQuery], Sequence[ComputeResource]],
    show: Callable[[ComputeResource], Answer],
) -> RowList[ComputeResource]:
    """A list that the database cuts."""
    return RowList(rows, mark_of, show, lambda one: one.where, fields=FILTERED)


def whole_list(
    rows: Callable[[UnitOfWork], Sequence[ComputeResource]],
    show: Callable[[ComputeResource], Answer],
) -> RowList[ComputeResource]:
    """A list whose rows are not all in the database."""
    return RowList(
        lambda uow, query: cut_listed(query, rows(uow), mark_of),
        mark_of,
        show,
        lambda one: one.where,
    )


def change(
    call: ComputeCall, verb: OperationVerb, act: Callable[[UnitOfWork], ComputeResource]
) -> Change:
    """A change that is done when its operation is answered."""

    def work(uow: UnitOfWork) -> Operation:
        return operations.complete(uow, store.target_of(act(uow)), verb)

    return call.begin(work)


def show_quota(use: QuotaUse) -> Answer:
    quota = use.quota
    return {"metric": quota.metric, "limit": float(quota.limit), "usage": float(use.usage)}


def without_empty(shown: Mapping[str, object]) -> Answer:
    """The fields that are set."""
    return {name: value for name, value in shown.items() if value not in ("", [], (), None)}
