"""Instances, as records, with the rows of nodes that they are hosts of. An instance is there for as
long as its row lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, case, func, literal, select

from podyard.db.compute import nodes as node_rows
from podyard.db.store.records import columns
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import projects
from podyard.db.tables.compute import hosts, instances, nodes
from podyard.domain.instances.instance import (
    Instance,
    InstanceRow,
    ProvisioningModel,
    status_of,
)
from podyard.domain.lists.pages import RowQuery
from podyard.domain.node import COMPUTE, NodeRecord, NodeState, Road
from podyard.hardware.topology import NO_TOPOLOGY

# of a live instance, whose row `to_instance` reads
LIVE = (
    select(
        *(column.label(f"instance_{column.name}") for column in instances.c),
        *nodes.c,
        hosts.c.internal_ip,
        hosts.c.external_ip,
        projects.c.number.label("project_number"),
    )
    .join(nodes, nodes.c.node_key == instances.c.node_key)
    .join(projects, projects.c.project == instances.c.project)
    .outerjoin(
        hosts,
        (hosts.c.node_key == instances.c.node_key) & (hosts.c.host_index == instances.c.host_index),
    )
    .where(nodes.c.live_name.is_not(None))
)
_IN_ZONE = LIVE.where(
    instances.c.project == bindparam("of_project"), instances.c.zone == bindparam("of_zone")
)
_BY_NAME = _IN_ZONE.where(instances.c.name == bindparam("of_name"))
_BY_NUMBER = _IN_ZONE.where(instances.c.number == bindparam("of_number"))
NUMBER_MAX = 2**63 - 1  # of a column
_OF_NODE = LIVE.where(instances.c.node_key == bindparam("key")).order_by(instances.c.host_index)
_OF_GROUP = LIVE.where(instances.c.group_key == bindparam("key")).order_by(instances.c.name)
_ROWS_OF_NODE = (
    select(instances)
    .where(instances.c.node_key == bindparam("key"))
    .order_by(instances.c.host_index)
)
_WITHOUT_CHIPS = select(func.count()).where(
    nodes.c.live_name.is_not(None), nodes.c.topology == NO_TOPOLOGY
)
BOUGHT_AS = nodes.c.spec[("extras", COMPUTE, "scheduling", "model")].as_string()


def _new(*, has_hosts: bool, queues: bool) -> str:
    return status_of(NodeState.CREATING, has_hosts=has_hosts, queues=queues).value


# As `status_of` has it, so that the database can filter by it.
STATUS: ColumnElement[str] = case(
    {
        state.value: status_of(state, has_hosts=True, queues=False).value
        for state in NodeState
        if state is not NodeState.CREATING
    },
    value=nodes.c.state,
    else_=case(
        (nodes.c.first_address > 0, _new(has_hosts=True, queues=False)),
        (ProvisioningModel.FLEX_START.value == BOUGHT_AS, _new(has_hosts=False, queues=True)),
        else_=literal(_new(has_hosts=False, queues=False)),
    ),
)
_COLUMNS = RowColumns(
    name=instances.c.name,
    place=instances.c.zone,
    created=instances.c.created,
    key=instances.c.instance_key,
    fields={"name": instances.c.name, "status": STATUS},
    labels=nodes.c.spec["labels"],
    own_labels=instances.c.own["labels"],
)


def insert(uow: UnitOfWork, row: InstanceRow) -> None:
    uow.insert(instances, columns(row))


def find(uow: UnitOfWork, project: str, zone: str, name: str) -> Instance | None:
    """The live one of that name, or of that number: no name begins with a digit."""
    here = {"of_project": project, "of_zone": zone}
    if name.isdigit():
        row = uow.first(_BY_NUMBER, {**here, "of_number": min(int(name), NUMBER_MAX)})
    else:
        row = uow.first(_BY_NAME, {**here, "of_name": name})
    return None if row is None else to_instance(row)


def of_node(uow: UnitOfWork, node_key: str) -> list[Instance]:
    """In the order of the hosts."""
    return [to_instance(row) for row in uow.all(_OF_NODE, {"key": node_key})]


def rows_of_node(uow: UnitOfWork, node_key: str) -> list[InstanceRow]:
    """In the order of the hosts, also of a row of nodes that is gone."""
    return [InstanceRow(**row) for row in uow.all(_ROWS_OF_NODE, {"key": node_key})]


def rows_of_record(uow: UnitOfWork, record: NodeRecord) -> list[InstanceRow]:
    """The instances that are a node's hosts; on the other road none."""
    return rows_of_node(uow, record.node_key) if record.road is Road.COMPUTE else []


def set_own(uow: UnitOfWork, row: InstanceRow, own: Mapping[str, Any]) -> None:
    uow.update(instances, {"instance_key": row.instance_key}, {"own": own})


def of_group(uow: UnitOfWork, group_key: str) -> list[Instance]:
    """By name."""
    return [to_instance(row) for row in uow.all(_OF_GROUP, {"key": group_key})]


def of_groups(uow: UnitOfWork, group_keys: Sequence[str]) -> dict[str, list[Instance]]:
    """By name, of each group that has any."""
    query = LIVE.where(instances.c.group_key.in_(group_keys)).order_by(instances.c.name)
    groups: dict[str, list[Instance]] = {}
    for row in uow.all(query):
        groups.setdefault(row["instance_group_key"], []).append(to_instance(row))
    return groups


def count_of_group(uow: UnitOfWork, group_key: str) -> int:
    """Also of those that are gone."""
    counted = select(func.count()).where(instances.c.group_key == group_key)
    return int(uow.execute(counted).scalar() or 0)


def of_project(uow: UnitOfWork, project: str) -> list[Instance]:
    """The live ones, by zone and name."""
    query = LIVE.where(instances.c.project == project)
    return [to_instance(row) for row in uow.all(query.order_by(instances.c.zone, instances.c.name))]


def page(uow: UnitOfWork, project: str, zone: str | None, query: RowQuery) -> list[Instance]:
    """Those of one zone, or (None) of all."""
    rows: Select[Any] = LIVE.where(instances.c.project == project)
    if zone is not None:
        rows = rows.where(instances.c.zone == zone)
    return [to_instance(row) for row in uow.all(select_page(rows, _COLUMNS, query))]


def count_without_chips(uow: UnitOfWork) -> int:
    """Of all projects."""
    return int(uow.execute(_WITHOUT_CHIPS).scalar() or 0)


def types_on_road(uow: UnitOfWork, project: str) -> list[tuple[str, str]]:
    """(zone, accelerator type or machine type without chips) of the project's live rows of
    instances."""
    query = select(nodes.c.zone, nodes.c.accelerator_type).where(
        nodes.c.project == project,
        nodes.c.road == Road.COMPUTE,
        nodes.c.live_name.is_not(None),
    )
    rows = uow.all(query.order_by(nodes.c.node_key))
    return [(row["zone"], row["accelerator_type"]) for row in rows]


_ROW = tuple(column.name for column in instances.c)


def to_instance(row: Mapping[str, Any]) -> Instance:
    of_node = {column.name: row[column.name] for column in nodes.c}
    return Instance(
        InstanceRow(**{name: row[f"instance_{name}"] for name in _ROW}),
        node_rows.to_record(of_node),
        row["internal_ip"] or "",
        row["external_ip"] or "",
        row["project_number"],
    )
