"""Agents, as records."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from podyard.db.records import changed_columns, columns
from podyard.db.tables_compute import agents
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.agent import AgentRecord

_ALL = select(agents).order_by(agents.c.agent_id)
_BY_ID = select(agents).where(agents.c.agent_id == bindparam("id"))
_BY_ID_LOCKED = _BY_ID.with_for_update()
_LIVING = _ALL.where(agents.c.seen >= bindparam("oldest", type_=agents.c.seen.type))


def find(uow: UnitOfWork, agent_id: str, *, lock: bool = False) -> AgentRecord | None:
    row = uow.first(_BY_ID_LOCKED if lock else _BY_ID, {"id": agent_id})
    return None if row is None else AgentRecord(**row)


def list_all(uow: UnitOfWork) -> list[AgentRecord]:
    return [AgentRecord(**row) for row in uow.all(_ALL)]


def list_living(uow: UnitOfWork) -> list[AgentRecord]:
    """Those that have been heard of within their lease, by id."""
    oldest = uow.real_now.plus_seconds(-uow.leases.agent_seconds)
    return [AgentRecord(**row) for row in uow.all(_LIVING, {"oldest": oldest})]


def store(uow: UnitOfWork, before: AgentRecord | None, agent: AgentRecord) -> None:
    """Writes a new agent, or what has changed of one."""
    if before is None:
        uow.insert(agents, columns(agent))
    else:
        uow.update(agents, {"agent_id": agent.agent_id}, changed_columns(before, agent))
