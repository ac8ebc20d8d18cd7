"""Agents and the tokens to join with, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, select

from podyard.base.clock import RealTime
from podyard.db.store.records import changed_columns, columns
from podyard.db.store.transition import create_record
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import agents, join_tokens
from podyard.domain.agent import AgentRecord, AgentState, JoinToken

_ALL = select(agents).order_by(agents.c.agent_id)
_BY_ID = select(agents).where(agents.c.agent_id == bindparam("id"))
_BY_ID_LOCKED = _BY_ID.with_for_update()
_LIVING = _ALL.where(
    agents.c.seen >= bindparam("oldest", type_=agents.c.seen.type),
    agents.c.state != AgentState.REMOVED.value,
)
_TOKEN = select(join_tokens).where(join_tokens.c.token_hash == bindparam("hash"))
_TOKEN_LOCKED = _TOKEN.with_for_update()


def find(uow: UnitOfWork, agent_id: str, *, lock: bool = False) -> AgentRecord | None:
    row = uow.first(_BY_ID_LOCKED if lock else _BY_ID, {"id": agent_id})
    return None if row is None else to_agent(row)


def list_all(uow: UnitOfWork) -> list[AgentRecord]:
    return [to_agent(row) for row in uow.all(_ALL)]


def list_living(uow: UnitOfWork) -> list[AgentRecord]:
    """Those that have been heard of within their lease and are not removed, by id."""
    oldest = uow.real_now.plus_seconds(-uow.leases.agent_seconds)
    return [to_agent(row) for row in uow.all(_LIVING, {"oldest": oldest})]


def store(
    uow: UnitOfWork, before: AgentRecord | None, agent: AgentRecord, *, reason: str = ""
) -> None:
    """Writes a new agent, or what has changed of one, but for its state."""
    if before is None:
        create_record(uow, agent, reason=reason)
    elif changed := changed_columns(before, agent):
        uow.update(agents, {"agent_id": agent.agent_id}, changed)


def add_token(uow: UnitOfWork, token: JoinToken) -> None:
    uow.insert(join_tokens, columns(token))


def find_token(uow: UnitOfWork, token_hash: str, *, lock: bool = False) -> JoinToken | None:
    row = uow.first(_TOKEN_LOCKED if lock else _TOKEN, {"hash": token_hash})
    return None if row is None else JoinToken(**row)


def use_token(uow: UnitOfWork, token: JoinToken, agent_id: str) -> None:
    uow.update(
        join_tokens, {"token_hash": token.token_hash}, {"used": uow.real_now, "used_by": agent_id}
    )


def forget_tokens(uow: UnitOfWork, before: RealTime) -> None:
    """Deletes the tokens that expired before a moment."""
    uow.execute(delete(join_tokens).where(join_tokens.c.expires <= before))


def count_open_tokens(uow: UnitOfWork) -> int:
    rows = uow.all(
        select(join_tokens).where(
            join_tokens.c.used.is_(None), join_tokens.c.expires > uow.real_now
        )
    )
    return len(rows)


def to_agent(row: Mapping[str, Any]) -> AgentRecord:
    return AgentRecord(**{**row, "state": AgentState(row["state"])})
