"""Queued resources, reservations and what waits, page by page, as the console's lists show them.
Reads only."""

from __future__ import annotations

from podyard.control.access import identity
from podyard.control.compute import queue_view, reservations
from podyard.control.compute.node_checks import zone_of
from podyard.control.compute.queue_view import Waiting
from podyard.db.compute import queued_resources as queued_rows
from podyard.db.compute import reservations as reservation_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import lists
from podyard.domain.fleet import Fleet
from podyard.domain.listing import Facet, ListedRow, ListQuery, RowPage, page_of
from podyard.domain.lists.pages import RowQuery
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import QueuedResource
from podyard.domain.reservation import ReservationUse

_DIGITS = 12  # numbers as texts of one length, so that texts are in the order of the numbers
_MIDDLE = 10 ** (_DIGITS - 1)  # added to priorities, which may be negative


def api_page(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str | None,
    query: RowQuery,
) -> list[QueuedResource]:
    """Those of one zone, or (None: `locations/-`) of all zones, as the TPU API lists them."""
    name = f"projects/{project}/locations/{zone or '-'}"
    principal.require("tpu.queuedresources.list", project, name)
    if zone is not None:
        zone_of(fleet, zone)
    listed = queued_rows.page(uow, project, zone, query)
    return [queued_rows.to_queued_resource(uow, record) for record in listed]


def queued_page(
    uow: UnitOfWork, principal: Principal, project: str, query: ListQuery
) -> tuple[RowPage[QueuedResource], list[Facet]]:
    principal.require("tpu.queuedresources.list", project, f"projects/{project}/locations/-")
    identity.project_row(uow, project)
    found = lists.queued_page(uow, project, query)
    rows = [queued_rows.to_queued_resource(uow, record) for record in found.rows]
    return RowPage(rows, found.before, found.after), lists.queued_facets(uow, project)


def reservation_page(
    uow: UnitOfWork, principal: Principal, project: str, query: ListQuery
) -> tuple[RowPage[ReservationUse], list[Facet]]:
    principal.require("tpu.reservations.list", project, f"projects/{project}/locations/-")
    identity.project_row(uow, project)
    found, held = lists.reservation_page(uow, project, query), reservation_rows.held_chips(uow)
    rows = [reservations.use_of(record, held) for record in found.rows]
    return RowPage(rows, found.before, found.after), lists.reservation_facets(uow, project)


def waiting_page(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, query: ListQuery
) -> tuple[RowPage[Waiting], list[Facet]]:
    """A position is found by looking at all that wait, so that nothing is left for the database to
    cut. The kind stands for the state."""
    identity.project_row(uow, project)
    waiting = queue_view.rows(uow, fleet, principal, project, None)
    rows = [(_list_row(item, query.sort, index), item) for index, item in enumerate(waiting)]
    return page_of(query, rows), [listed.facet for listed, _ in rows]


def _list_row(item: Waiting, sort: str, index: int) -> ListedRow:
    """`index`: the place in the queue, which the order by position keeps."""
    parts = item.name.split("/")
    places = {
        "position": f"{index:0{_DIGITS}}",
        "name": parts[-1],
        "kind": str(item.kind),
        "zone": parts[3],
        "type": item.accelerator_type,
        "priority": f"{item.priority + _MIDDLE:0{_DIGITS}}",
        "since": f"{item.waiting_since.nanos:0{2 * _DIGITS}}",
    }
    facet = Facet(str(item.kind), parts[3], item.accelerator_type, 1)
    return ListedRow(
        places.get(sort, places["position"]),
        item.name,
        facet,
        (parts[-1], item.accelerator_type, item.reason),
    )
