"""The list of a project's nodes, page by page. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.control.compute.node_checks import zone_of
from podyard.db.compute import nodes as rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import lists
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.listing import Facet, ListQuery, NodeKind, RowPage
from podyard.domain.lists.pages import RowQuery
from podyard.domain.node import Node, NodeRecord
from podyard.domain.principal import Principal
from podyard.pricing.current_card import default_rate_card

T = TypeVar("T")
COST = "cost"  # the order by the cost so far
PRICE = "price"  # the order by the price per hour of now


@dataclasses.dataclass(frozen=True, slots=True)
class PricedList(Generic[T]):
    """A list that can be sorted by price and by cost. `in_order` takes the prices, `by_cost` the
    costs so far; `kinds` are those that have a price."""

    in_order: Callable[[UnitOfWork, str, ListQuery, Mapping[NodeKind, int]], RowPage[T]]
    by_cost: Callable[[UnitOfWork, str, ListQuery, Mapping[str, int]], RowPage[T]]
    kinds: Callable[[UnitOfWork, str], Sequence[NodeKind]]

    def page(
        self, uow: UnitOfWork, project: str, query: ListQuery, costs: Mapping[str, int]
    ) -> RowPage[T]:
        """`costs`: by the keys of nodes."""
        if query.sort == COST:
            return self.by_cost(uow, project, query, costs)
        kinds = self.kinds(uow, project) if query.sort == PRICE else []
        nanos = {kind: _nanos_per_hour(kind, uow.now) for kind in kinds}
        prices = {kind: price for kind, price in nanos.items() if price is not None}
        return self.in_order(uow, project, query, prices)


_NODES = PricedList(lists.node_page, lists.node_page_by_cost, lists.node_kinds)


def api_page(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str | None,
    query: RowQuery,
) -> list[Node]:
    """The live nodes of one zone, or (None: `locations/-`) of all zones, as the TPU API lists
    them."""
    principal.require("tpu.nodes.list", project, f"projects/{project}/locations/{zone or '-'}")
    if zone is not None:
        zone_of(fleet, zone)
    return rows.to_nodes(uow, rows.page(uow, project, zone, query))


def list_page(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    query: ListQuery,
    costs: Mapping[str, int] | None = None,
) -> RowPage[NodeRecord]:
    """The live nodes of one page. `costs`: by the keys of nodes, for the order by cost."""
    _check(uow, principal, project)
    return _NODES.page(uow, project, query, costs or {})


def list_facets(uow: UnitOfWork, principal: Principal, project: str) -> list[Facet]:
    """Return how many live nodes there are of each state, zone and type."""
    _check(uow, principal, project)
    return lists.node_facets(uow, project)


def _check(uow: UnitOfWork, principal: Principal, project: str) -> None:
    principal.require("tpu.nodes.list", project, f"projects/{project}/locations/-")
    identity.project_row(uow, project)


def _nanos_per_hour(kind: NodeKind, now: PlatformTime) -> int | None:
    try:
        card = default_rate_card()
        return card.price(
            kind.accelerator_type, region_of(kind.zone), kind.usage_class, now
        ).total_nanos_per_hour
    except PodyardError:
        return None
