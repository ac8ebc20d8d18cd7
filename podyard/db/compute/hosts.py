"""Hosts of nodes, as records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, func, or_, select, update

from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import hosts, nodes
from podyard.domain.host_record import LIVE_HOST_STATES, HostRecord, HostState
from podyard.domain.ran_module import RanModule

_ALL = select(hosts).order_by(hosts.c.node_key, hosts.c.host_index)
_OF_NODE = _ALL.where(hosts.c.node_key == bindparam("key"))
_BY_ID = select(hosts).where(hosts.c.host_id == bindparam("id"))
_LIVE = _ALL.where(hosts.c.state.in_(LIVE_HOST_STATES))
_LIVE_OF = _LIVE.where(hosts.c.agent_id == bindparam("agent"))
_RENEW = (
    update(hosts)
    .where(hosts.c.agent_id == bindparam("agent"), hosts.c.state.in_(LIVE_HOST_STATES))
    .values(lease_until=bindparam("until"))
)
_BUSY = (
    _LIVE.with_only_columns(hosts.c.host_id).where(hosts.c.node_key == bindparam("key")).limit(1)
)
_TO_STOP = (
    select(hosts, nodes.c.node_id, nodes.c.state.label("node_state"))
    .join(nodes, nodes.c.node_key == hosts.c.node_key)
    .where(
        hosts.c.state.in_((HostState.STARTING, HostState.RUNNING)),
        or_(nodes.c.state != "READY", nodes.c.ready_since != hosts.c.ready_since),
    )
    .order_by(hosts.c.node_key, hosts.c.host_index)
)
_TO_STOP_OF = _TO_STOP.where(hosts.c.agent_id == bindparam("agent"))

_PROGRAMS = (
    select(nodes.c.live_name, hosts.c.programs)
    .join(nodes, nodes.c.node_key == hosts.c.node_key)
    .where(
        # From the few hosts that an agent has, not from all nodes of the project: that is what the
        # `concat` is for.
        hosts.c.agent_id.is_not(None),
        hosts.c.state.in_(LIVE_HOST_STATES),
        nodes.c.project.concat("") == bindparam("project"),
    )
    .where(nodes.c.live_name.is_not(None))
    .order_by(nodes.c.zone, nodes.c.node_id, hosts.c.host_index)
)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeModule:
    """A module that ran on a node; `node`: the node's full name."""

    node: str
    module: RanModule


@dataclasses.dataclass(frozen=True, slots=True)
class HostToStop:
    """A live host whose node is not READY, or has become READY again since."""

    host: HostRecord
    node_id: str
    node_state: str


def of_node(uow: UnitOfWork, node_key: str) -> list[HostRecord]:
    """In their order."""
    return [_record(row) for row in uow.all(_OF_NODE, {"key": node_key})]


def modules_that_do_not_fit(uow: UnitOfWork, project: str) -> list[NodeModule]:
    """Modules that ran on live hosts of a project and need more memory than the slice has; of a
    node each name once."""
    found: dict[tuple[str, str], NodeModule] = {}
    for row in uow.all(_PROGRAMS, {"project": project}):
        for module in (RanModule(**one) for one in row["programs"] if one["fits"] is False):
            found.setdefault((row["live_name"], module.name), NodeModule(row["live_name"], module))
    return list(found.values())


def find(uow: UnitOfWork, host_id: str) -> HostRecord | None:
    row = uow.first(_BY_ID, {"id": host_id})
    return None if row is None else _record(row)


def live(uow: UnitOfWork, agent_id: str | None) -> list[HostRecord]:
    """Those whose processes may be on their chips, of one agent or (None) of all; by node and
    index."""
    found = uow.all(_LIVE) if agent_id is None else uow.all(_LIVE_OF, {"agent": agent_id})
    return [_record(row) for row in found]


def live_elsewhere(uow: UnitOfWork, agent_id: str) -> list[HostRecord]:
    """The live hosts of all agents but one, by node and index."""
    return [_record(row) for row in uow.all(_LIVE.where(hosts.c.agent_id != agent_id))]


def list_all(uow: UnitOfWork) -> list[HostRecord]:
    """By node and index."""
    return [_record(row) for row in uow.all(_ALL)]


def is_busy(uow: UnitOfWork, node_key: str) -> bool:
    """Return whether a host of the node is live."""
    return uow.execute(_BUSY, {"key": node_key}).first() is not None


def live_counts(uow: UnitOfWork) -> dict[str, int]:
    """The number of live hosts by agent."""
    query = select(hosts.c.agent_id, func.count().label("hosts")).where(
        hosts.c.state.in_(LIVE_HOST_STATES)
    )
    return {row["agent_id"]: row["hosts"] for row in uow.all(query.group_by(hosts.c.agent_id))}


def to_stop(uow: UnitOfWork, agent_id: str | None) -> list[HostToStop]:
    """Hosts of nodes that have left READY, or have left it and come back since; of one agent or
    (None) of all."""
    rows = uow.all(_TO_STOP) if agent_id is None else uow.all(_TO_STOP_OF, {"agent": agent_id})
    return [
        HostToStop(
            _record({column.name: row[column.name] for column in hosts.c}),
            row["node_id"],
            row["node_state"],
        )
        for row in rows
    ]


def present(uow: UnitOfWork, host_ids: Sequence[str]) -> set[str]:
    """Return which of the ids are hosts."""
    return {
        row["host_id"]
        for row in uow.all(select(hosts.c.host_id).where(hosts.c.host_id.in_(host_ids)))
    }


def set_asked(uow: UnitOfWork, host_ids: Sequence[str]) -> None:
    uow.execute(update(hosts).where(hosts.c.host_id.in_(host_ids)).values(asked=True))


def set_problem(uow: UnitOfWork, host_ids: Sequence[str], problem: str) -> None:
    uow.execute(update(hosts).where(hosts.c.host_id.in_(host_ids)).values(problem=problem))


def set_taken(uow: UnitOfWork, prefix: str, taken: Mapping[str, str]) -> None:
    """The problems that begin with `prefix`, by host: others have none such any more. A host with
    another problem keeps it."""
    free = hosts.c.problem.startswith(prefix, autoescape=True)
    uow.execute(update(hosts).where(free, hosts.c.host_id.not_in(list(taken))).values(problem=""))
    for host_id, problem in sorted(taken.items()):
        mine = update(hosts).where(hosts.c.host_id == host_id, hosts.c.problem == "")
        uow.execute(mine.values(problem=f"{prefix}{problem}"))


def renew_leases(uow: UnitOfWork, agent_id: str) -> None:
    """Of the agent's live hosts."""
    until = uow.real_now.plus_seconds(uow.leases.replica_seconds)
    uow.execute(_RENEW, {"agent": agent_id, "until": until})


def _record(row: Mapping[str, Any]) -> HostRecord:
    programs = tuple(RanModule(**module) for module in row["programs"])
    return HostRecord(**{**row, "state": HostState(row["state"]), "programs": programs})
