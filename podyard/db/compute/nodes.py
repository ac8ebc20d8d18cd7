"""Nodes, as records, and the hosts that come and go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    Select,
    String,
    and_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    union_all,
    update,
)

from podyard.base.clock import PlatformTime
from podyard.base.spelling import camel_case
from podyard.db.compute import slices
from podyard.db.jobs.slices import is_any_on
from podyard.db.store import yard
from podyard.db.store.records import columns, from_node_spec
from podyard.db.store.row_queries import RowColumns, select_page
from podyard.db.store.unit_of_work import Stale, UnitOfWork
from podyard.db.tables.compute import hosts, nodes
from podyard.db.tables.jobs import job_slices, jobs
from podyard.domain.host import SHUTDOWN_SCRIPT, STARTUP_SCRIPT, external_address
from podyard.domain.host_record import HostState
from podyard.domain.job import ACTIVE_JOB_STATES, ENDED_JOB_STATES
from podyard.domain.lists.pages import RowQuery
from podyard.domain.node import (
    NODE,
    NODE_STATES_WAITING_FOR_SLICE,
    Node,
    NodeHost,
    NodeRecord,
    NodeSpec,
    NodeState,
    Road,
    Symptom,
    UpcomingMaintenance,
    UsageClass,
    node_name,
)

# Addresses that the wire shows inside: 10.128.0.2 upwards (Google's usual range).
_INTERNAL_BASE = (10 << 24) + (128 << 16) + 2
_TIMES = ("created", "ready_since", "termination")


_LIVE = select(nodes).where(nodes.c.live_name.is_not(None))
_BY_NAME = select(nodes).where(nodes.c.live_name == bindparam("name"))
_BY_KEY = select(nodes).where(nodes.c.node_key == bindparam("key"))
_AS_PLANNED = _BY_KEY.where(nodes.c.version == bindparam("seen")).with_for_update()
_READY = select(nodes).where(nodes.c.state == NodeState.READY).order_by(nodes.c.live_name)
_WAITING_NAMES = select(nodes.c.node_key, nodes.c.live_name).where(
    # So that SQLite goes by the state: few nodes wait, and a project may have many.
    func.coalesce(nodes.c.project, "") == bindparam("project"),
    nodes.c.state.in_(sorted(NODE_STATES_WAITING_FOR_SLICE)),
    nodes.c.live_name.is_not(None),
)
_LAST_ADDRESS = (
    select(nodes.c.first_address, nodes.c.host_count)
    # 0: it has none yet. The index has the same condition
    .where(nodes.c.first_address > literal_column("0"))
    .order_by(nodes.c.first_address.desc())
    .limit(1)
)
_SHOWN_OF_HOST = (
    hosts.c.node_key, hosts.c.host_index, hosts.c.internal_ip, hosts.c.external_ip, hosts.c.state,
    hosts.c.isolation,
    hosts.c.software,
)  # fmt: skip
_HOSTS = (
    select(*_SHOWN_OF_HOST).where(hosts.c.node_key == bindparam("key")).order_by(hosts.c.host_index)
)
_REMOVE_HOSTS = delete(hosts).where(hosts.c.node_key == bindparam("key"))
_FIRST_OF_JOB = select(nodes.c.first_address).where(
    nodes.c.node_key
    == select(jobs.c.node_key).where(jobs.c.job_key == bindparam("key")).scalar_subquery()
)
_FIRST_OF_QUEUED_RESOURCE = select(nodes.c.first_address).where(
    nodes.c.queued_resource_key == bindparam("key"),
    nodes.c.slice_index == 0,
    nodes.c.live_name.is_not(None),
)

_COLUMNS = RowColumns(
    name=nodes.c.live_name,
    place=nodes.c.zone,
    created=nodes.c.created,
    key=nodes.c.node_key,
    fields={},
)


def find(uow: UnitOfWork, project: str, zone: str, node_id: str) -> NodeRecord | None:
    """The live one of that name."""
    return _maybe(uow.first(_BY_NAME, {"name": node_name(project, zone, node_id)}))


def find_by_key(uow: UnitOfWork, node_key: str) -> NodeRecord | None:
    return _maybe(uow.first(_BY_KEY, {"key": node_key}))


def get_by_key(uow: UnitOfWork, node_key: str) -> NodeRecord:
    """One that must be there, whether it lives or is gone."""
    record = find_by_key(uow, node_key)
    assert record is not None, node_key
    return record


def find_as_planned(uow: UnitOfWork, node_key: str, version: int) -> NodeRecord | None:
    """The node that a plan was made for, locked; None when it has changed since."""
    return _maybe(uow.first(_AS_PLANNED, {"key": node_key, "seen": version}))


def page(uow: UnitOfWork, project: str, zone: str | None, query: RowQuery) -> list[NodeRecord]:
    """The live nodes of Cloud TPU's road, of one zone, or (None) of all."""
    rows = _LIVE.where(nodes.c.project == project, nodes.c.road == Road.TPU)
    if zone is not None:
        rows = rows.where(nodes.c.zone == zone)
    return [to_record(row) for row in uow.all(select_page(rows, _COLUMNS, query))]


def newest(uow: UnitOfWork, project: str, most: int) -> list[NodeRecord]:
    """The live nodes of a project, the newest first."""
    query = _LIVE.where(nodes.c.project == project)
    newest_first = query.order_by(nodes.c.created.desc(), nodes.c.node_key)
    return [to_record(row) for row in uow.all(newest_first.limit(most))]


def live(uow: UnitOfWork, project: str | None) -> list[NodeRecord]:
    """Those of a project or (None) of all, by key."""
    query = _LIVE if project is None else _LIVE.where(nodes.c.project == project)
    return [to_record(row) for row in uow.all(query.order_by(nodes.c.node_key))]


def ready(uow: UnitOfWork) -> list[NodeRecord]:
    """Of all projects, by name."""
    return [to_record(row) for row in uow.all(_READY)]


def ready_in(uow: UnitOfWork, project: str) -> list[NodeRecord]:
    """By key."""
    query = select(nodes).where(nodes.c.project == project, nodes.c.state == NodeState.READY)
    return [to_record(row) for row in uow.all(query.order_by(nodes.c.node_key))]


def of_queued_resource(uow: UnitOfWork, queued_resource_key: str) -> list[NodeRecord]:
    """The live nodes of a queued resource, in the order of its slices."""
    return [to_record(row) for row in uow.all(_OF_QUEUED_RESOURCE, {"key": queued_resource_key})]


def of_job(uow: UnitOfWork, job_key: str) -> list[NodeRecord]:
    """The nodes of a job's slices, in order."""
    return [to_record(row) for row in uow.all(_OF_JOB, {"key": job_key})]


_OF_JOB = (
    select(nodes)
    .where(
        nodes.c.node_key.in_(
            union_all(
                select(jobs.c.node_key).where(jobs.c.job_key == bindparam("key")),
                select(job_slices.c.node_key).where(job_slices.c.job_key == bindparam("key")),
            )
        )
    )
    .order_by(nodes.c.slice_index)
)
_OF_QUEUED_RESOURCE = (
    select(nodes)
    .where(nodes.c.queued_resource_key == bindparam("key"), nodes.c.live_name.is_not(None))
    .order_by(nodes.c.slice_index, nodes.c.node_id)
)


def that_want_hosts(uow: UnitOfWork) -> list[NodeRecord]:
    """READY nodes with a script or with hosts that were asked for, of which some are not
    materialised."""
    return [to_record(row) for row in uow.all(_that_want_hosts())]


@cache
def _that_want_hosts() -> Select[Any]:
    text = cast(nodes.c.spec, String)
    scripted = or_(text.like(f'%"{STARTUP_SCRIPT}"%'), text.like(f'%"{SHUTDOWN_SCRIPT}"%'))
    asked = nodes.c.node_key.in_(
        select(hosts.c.node_key).where(hosts.c.state == HostState.VIRTUAL, hosts.c.asked)
    )
    idle = exists().where(hosts.c.node_key == nodes.c.node_key, hosts.c.state == HostState.VIRTUAL)
    # the text of a node's spec is looked through once, not once per host
    wanted = or_(asked, and_(scripted, idle))
    return select(nodes).where(nodes.c.state == NodeState.READY, wanted).order_by(nodes.c.node_key)


def list_left_behind(uow: UnitOfWork) -> list[NodeRecord]:
    """The live nodes that were made for jobs that are all over, by key."""
    return [to_record(row) for row in uow.all(_LEFT_BEHIND)]


_LEFT_BEHIND = _LIVE.where(
    # Of the live nodes those that were made for a job: few, whatever has been before.
    nodes.c.job_key.is_not(None),
    is_any_on(jobs.c.owns_node, jobs.c.state.in_(ENDED_JOB_STATES)),
    ~is_any_on(jobs.c.state.in_(ACTIVE_JOB_STATES)),
).order_by(nodes.c.node_key)


def state_counts(uow: UnitOfWork, project: str) -> dict[str, int]:
    """Return how many live nodes of the project are in each state."""
    query = select(nodes.c.state, func.count().label("nodes")).where(
        nodes.c.project == project, nodes.c.live_name.is_not(None)
    )
    return {
        row["state"]: row["nodes"]
        for row in uow.all(query.group_by(nodes.c.state).order_by(nodes.c.state))
    }


def waiting_names(uow: UnitOfWork, project: str) -> dict[str, str]:
    """The full name of each node of the project that may wait for chips, by key."""
    return {
        row["node_key"]: row["live_name"] for row in uow.all(_WAITING_NAMES, {"project": project})
    }


def set_spec(uow: UnitOfWork, node: NodeRecord, spec: NodeSpec) -> None:
    """Raises `Stale` when the node has changed since it was read."""
    seen = {"node_key": node.node_key, "version": node.version}
    if not uow.update(nodes, seen, {"spec": from_node_spec(spec)}):
        raise Stale(NODE.name, node.node_key)


def withdraw_notice(uow: UnitOfWork, project: str, reclaim_at: PlatformTime) -> None:
    """The nodes of the project that would be taken back at that moment are not."""
    told = update(nodes).where(nodes.c.project == project, nodes.c.reclaim_at == reclaim_at)
    uow.execute(told.values(reclaim_at=None))


def addresses(uow: UnitOfWork, most: int) -> list[tuple[str, str, int, int]]:
    """(key, project, number of the first address, number of hosts) of the READY nodes that have
    addresses, in their order."""
    found = uow.execute(_ADDRESSES, {"most": most})
    return [(row.node_key, row.project, row.first_address, row.host_count) for row in found]


_ADDRESSES = (
    select(nodes.c.node_key, nodes.c.project, nodes.c.first_address, nodes.c.host_count)
    .where(nodes.c.state == NodeState.READY, nodes.c.first_address > 0)
    .order_by(nodes.c.first_address)
    .limit(bindparam("most"))
)


def first_address_of(uow: UnitOfWork, node: NodeRecord) -> int:
    """The number of the first address of the first slice of a node's multislice; 0: it has none
    yet."""
    of_job = node.queued_resource_key is None
    query, key = (
        (_FIRST_OF_JOB, node.job_key)
        if of_job
        else (_FIRST_OF_QUEUED_RESOURCE, node.queued_resource_key)
    )
    return int(uow.execute(query, {"key": key}).scalar() or 0)


def to_node(uow: UnitOfWork, record: NodeRecord) -> Node:
    of_node = uow.all(_HOSTS, {"key": record.node_key})
    return _node(record, of_node, slices.id_of(uow, record.node_key))


def to_nodes(uow: UnitOfWork, records: Sequence[NodeRecord]) -> list[Node]:
    keys = [record.node_key for record in records]
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    for host in uow.all(
        select(*_SHOWN_OF_HOST).where(hosts.c.node_key.in_(keys)).order_by(hosts.c.host_index)
    ):
        by_node.setdefault(host["node_key"], []).append(host)
    slice_ids = slices.ids_of(uow, keys)
    return [
        _node(record, by_node.get(record.node_key, []), slice_ids.get(record.node_key))
        for record in records
    ]


def freeze(uow: UnitOfWork, record: NodeRecord) -> dict[str, Any]:
    """The node as JSON, for an operation's response: it must not change with the node
    afterwards."""
    return columns(to_node(uow, record))


def thaw(data: Mapping[str, Any]) -> Node:
    """The node that `freeze` made `data` of; what an older Podyard did not store has its
    default."""
    times = {name: data.get(name) for name in _TIMES}
    return Node(
        **{
            **data,
            **{
                name: None if nanos is None else PlatformTime(nanos)
                for name, nanos in times.items()
            },
            "state": NodeState(data["state"]),
            "road": Road(data.get("road", Road.TPU)),
            "spec": to_spec(data["spec"]),
            "hosts": tuple(_host(host) for host in data["hosts"]),
            "symptoms": _symptoms(data.get("symptoms")),
            "upcoming_maintenance": _maintenance(data.get("upcoming_maintenance")),
            "maintenance_workers": tuple(data.get("maintenance_workers", ())),
        }
    )


def to_spec(data: Mapping[str, Any]) -> NodeSpec:
    fields = {**data, "usage_class": UsageClass(data["usage_class"]), "tags": tuple(data["tags"])}
    fields.pop("given_accelerator_config", None)  # older Podyards stored it
    return NodeSpec(**fields)


def to_record(row: Mapping[str, Any]) -> NodeRecord:
    parsed = {
        "state": NodeState(row["state"]),
        "usage_class": UsageClass(row["usage_class"]),
        "road": Road(row["road"]),
        "spec": to_spec(row["spec"]),
        "symptoms": _symptoms(row["symptoms"]),
        "upcoming_maintenance": _maintenance(row["upcoming_maintenance"]),
        "maintenance_workers": tuple(row["maintenance_workers"] or ()),
    }
    return NodeRecord(**{**row, **parsed})


def add_hosts(uow: UnitOfWork, node_key: str, first_address: int, host_count: int) -> None:
    base = yard.ensure(uow).address_base
    for index in range(host_count):
        host = {
            "host_id": f"{node_key}-w-{index}",
            "node_key": node_key,
            "host_index": index,
            "internal_ip": internal_ip(first_address + index),
            "external_ip": external_address(base, first_address + index),
            "port_map": {},
        }
        uow.insert(hosts, host)


def internal_ip(number: int) -> str:
    """Of host `number` of the yard."""
    return _dotted_text(_INTERNAL_BASE + number)


def next_address(uow: UnitOfWork) -> int:
    """The first address number that no node ever had. The ranges of nodes do not overlap, so the
    one that begins last also ends last."""
    last = uow.first(_LAST_ADDRESS)
    return 1 if last is None else int(last["first_address"] + last["host_count"])


def remove_hosts(uow: UnitOfWork, node_key: str) -> None:
    uow.execute(_REMOVE_HOSTS, {"key": node_key})


def _maybe(row: Mapping[str, Any] | None) -> NodeRecord | None:
    return None if row is None else to_record(row)


def _symptoms(stored: Sequence[Mapping[str, str]] | None) -> tuple[Symptom, ...]:
    if not stored:
        return ()
    return tuple(Symptom(*(one[camel_case(name)] for name in Symptom._fields)) for one in stored)


def _maintenance(stored: Mapping[str, Any] | None) -> UpcomingMaintenance | None:
    return None if stored is None else UpcomingMaintenance(**stored)


def _node(record: NodeRecord, host_rows: Sequence[Mapping[str, Any]], slice_id: str | None) -> Node:
    return Node(
        node_key=record.node_key,
        number=record.number,
        project=record.project,
        zone=record.zone,
        node_id=record.node_id,
        state=record.state,
        version=record.version,
        spec=record.spec,
        created=record.created,
        ready_since=record.ready_since,
        state_reason=record.state_reason or record.wait_reason,
        job_id=record.job_key,
        slice_id=slice_id,
        hosts=tuple(_host(host) for host in host_rows),
        queued_resource=record.queued_resource,
        slice_index=record.slice_index,
        slice_count=record.slice_count,
        health=record.health,
        health_description=record.health_description,
        symptoms=record.symptoms,
        upcoming_maintenance=record.upcoming_maintenance,
        maintenance_workers=record.maintenance_workers,
        termination=record.termination,
        created_by=record.created_by,
        road=record.road,
    )


def _host(row: Mapping[str, Any]) -> NodeHost:
    return NodeHost(
        row["host_index"],
        row["internal_ip"],
        row["external_ip"],
        HostState(row["state"]),
        row["isolation"],
        row["software"],
    )


def _dotted_text(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
