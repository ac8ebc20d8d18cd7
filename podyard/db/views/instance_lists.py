"""Lists of instances and managed groups as pages show them: filtered, sorted and cut by the
database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, func, select

from podyard.db.compute.instance_groups import to_group
from podyard.db.compute.instances import BOUGHT_AS, LIVE, STATUS, to_instance
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import instance_groups, instances, nodes
from podyard.db.views.list_queries import ListedTable, by_price, facets, kinds, page, page_by_cost
from podyard.domain.instances.group import GroupRow
from podyard.domain.instances.instance import Instance
from podyard.domain.listing import Facet, ListQuery, NodeKind, RowPage
from podyard.domain.node import COMPUTE, Road

_MACHINE = nodes.c.spec[("extras", COMPUTE, "machine_type")].as_string()
_GROUP_NAME = func.coalesce(
    select(instance_groups.c.name)
    .where(instance_groups.c.group_key == instances.c.group_key)
    .scalar_subquery(),
    "",
)


_INSTANCES = ListedTable(
    instances,
    instances.c.instance_key,
    instances.c.name.concat("/").concat(instances.c.zone),
    {
        "name": instances.c.name,
        "state": STATUS,
        "zone": instances.c.zone,
        "type": _MACHINE,
        "model": BOUGHT_AS,
        "group": _GROUP_NAME,
        "created": instances.c.created,
        "by": nodes.c.created_by,
    },
    {"state": STATUS, "zone": instances.c.zone, "accelerator_type": _MACHINE},
    (
        instances.c.name,
        _MACHINE,
        _GROUP_NAME,
        nodes.c.state_reason,
        nodes.c.wait_reason,
        nodes.c.created_by,
    ),
    labels=nodes.c.spec["labels"],
    whole=LIVE.add_columns(instances.c.instance_key),
    parts=nodes.c.host_count,
)
_GROUPS = ListedTable(
    instance_groups,
    instance_groups.c.group_key,
    instance_groups.c.name.concat("/").concat(instance_groups.c.place),
    {
        "name": instance_groups.c.name,
        "zone": instance_groups.c.place,
        "size": instance_groups.c.target_size,
        "created": instance_groups.c.created,
        "by": instance_groups.c.created_by,
    },
    {"zone": instance_groups.c.place},
    (instance_groups.c.name, instance_groups.c.created_by),
)


def _of_project(project: str) -> list[ColumnElement[bool]]:
    return [
        instances.c.project == project,
        nodes.c.node_key == instances.c.node_key,
        nodes.c.live_name.is_not(None),
    ]


def instance_page(
    uow: UnitOfWork, project: str, query: ListQuery, nanos_per_hour: Mapping[NodeKind, int]
) -> RowPage[Instance]:
    """The live instances of a page. `nanos_per_hour`: the prices of their slices, by which the
    order `price` goes; each has its share."""
    order = None
    if query.sort == "price":
        order = by_price(nanos_per_hour) // nodes.c.host_count
    return page(uow, _INSTANCES, query, _of_project(project), to_instance, order)


def instance_page_by_cost(
    uow: UnitOfWork, project: str, query: ListQuery, costs: Mapping[str, int]
) -> RowPage[Instance]:
    """The live instances of a page by cost so far. `costs`: of their slices, by the keys of nodes;
    each has its share."""
    return page_by_cost(uow, _INSTANCES, query, _of_project(project), costs, to_instance)


def instance_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    """Of the live instances of a project; their machine types stand for types."""
    return facets(uow, _INSTANCES, *_of_project(project))


def instance_kinds(uow: UnitOfWork, project: str) -> list[NodeKind]:
    """Return what kinds of slices the live instances of a project make."""
    return kinds(
        uow,
        nodes.c.project == project,
        nodes.c.live_name.is_not(None),
        nodes.c.road == Road.COMPUTE,
    )


def group_page(uow: UnitOfWork, project: str, query: ListQuery) -> RowPage[GroupRow]:
    return page(uow, _GROUPS, query, [instance_groups.c.project == project], to_group)


def group_facets(uow: UnitOfWork, project: str) -> list[Facet]:
    return facets(uow, _GROUPS, instance_groups.c.project == project)
