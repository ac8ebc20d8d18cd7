"""The list of a project's nodes, page by page. Reads only."""

from __future__ import annotations

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.db import lists
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import region_of
from podyard.domain.listing import Facet, ListQuery, NodeKind, RowPage
from podyard.domain.node import NodeRecord
from podyard.domain.principal import Principal
from podyard.pricing.current_card import default_rate_card

PRICE = "price"  # the order by the price per hour of now


def list_page(
    uow: UnitOfWork, principal: Principal, project: str, query: ListQuery
) -> RowPage[NodeRecord]:
    """The live nodes of one page."""
    _check(uow, principal, project)
    kinds = lists.node_kinds(uow, project) if query.sort == PRICE else []
    prices = {
        kind: nanos for kind in kinds if (nanos := _nanos_per_hour(kind, uow.now)) is not None
    }
    return lists.node_page(uow, project, query, prices)


def list_facets(uow: UnitOfWork, principal: Principal, project: str) -> list[Facet]:
    """How many live nodes there are of each state, zone and type."""
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
