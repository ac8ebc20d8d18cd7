"""Routers, of which there are none, and routes, which follow from networks."""

from __future__ import annotations

from collections.abc import Mapping

from podyard.api.compute.call import Answer, ComputeCall, Handler, page
from podyard.api.compute.networks import network_link
from podyard.api.compute.resources import head, whole_list
from podyard.api.wire.row_lists import RowList
from podyard.control.compute.network import networks
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import link
from podyard.domain.compute.refusal import resource_not_found
from podyard.domain.compute.route import INTERNET_PRIORITY, NetworkRoute
from podyard.domain.lists.pages import Order, RowMark, cut_listed, time_mark


def _show_route(route: NetworkRoute) -> Answer:
    if route.leads_out:
        gateway = link(f"projects/{route.project}/global/gateways/default-internet-gateway")
        text, way = "Default route to the Internet.", {"nextHopGateway": gateway}
    else:
        here = network_link(route.project, route.network)
        text, way = "Default local route to the subnetwork.", {"nextHopNetwork": here}
    return {
        "kind": "compute#route",
        "id": str(route.number),
        "creationTimestamp": route.created.rfc3339(),
        "name": route.name,
        "description": f"{text[:-1]} {route.destination}.",
        "network": network_link(route.project, route.network),
        "destRange": route.destination,
        "priority": INTERNET_PRIORITY if route.leads_out else 0,
        "selfLink": link(route.path),
        **way,
    }


def _mark(route: NetworkRoute, order: Order) -> RowMark:
    if order is Order.NEWEST:
        return time_mark(route.created, route.name)
    return RowMark(route.name, route.name)


def _routes(call: ComputeCall, uow: UnitOfWork) -> list[NetworkRoute]:
    return networks.routes(uow, call.project, call.fleet)


def _list_routes(call: ComputeCall) -> Answer:
    return page(
        call,
        RowList(
            lambda uow, query: cut_listed(query, _routes(call, uow), _mark), _mark, _show_route
        ),
    )


def _get_route(call: ComputeCall) -> Answer:
    for route in call.read(lambda uow: _routes(call, uow)):
        if route.name == call.id:
            return _show_route(route)
    raise resource_not_found(call.path)


def _list_routers(call: ComputeCall) -> Answer:
    return page(call, whole_list(lambda _uow: [], head))


def _get_router(call: ComputeCall) -> Answer:
    call.read(lambda _uow: None)
    raise resource_not_found(call.path)


HANDLERS: Mapping[str, Handler] = {
    "routers.list": _list_routers,
    "routers.aggregatedList": _list_routers,
    "routers.get": _get_router,
    "routes.list": _list_routes,
    "routes.get": _get_route,
}
