"""Measures of a whole Podyard: what `/metrics` and `podyard doctor` go by. Each is one indexed
query."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, func, select

from podyard.db.platform import agents as agent_rows
from podyard.db.store import leases
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import leases as lease_table
from podyard.db.tables.base import outbox as outbox_table
from podyard.db.tables.base import timers as timer_table
from podyard.db.tables.billing import billing_accounts
from podyard.db.tables.compute import hosts, operations
from podyard.db.tables.jobs import replicas
from podyard.db.tables.queue import queued_resources
from podyard.domain.operation import OperationState

GONE = "GONE"  # of an agent that is silent


@dataclasses.dataclass(frozen=True, slots=True)
class Measures:
    """Ages and remaining times are in seconds. `leader` empty: no loop leads. `clock_lag_seconds`
    None: the clock
    cannot be behind UTC."""

    agents: Mapping[str, int]
    replicas: Mapping[str, int]
    hosts: Mapping[str, int]
    queued_resources: Mapping[str, int]
    operations_running: int
    operation_oldest_seconds: float
    outbox_unsent: int
    outbox_oldest_seconds: float
    timer_overdue_seconds: float
    leader: str
    leader_fence: int
    clock_lag_seconds: float | None
    accounts_held: int


def read(uow: UnitOfWork) -> Measures:
    lease = uow.first(select(lease_table).where(lease_table.c.name == leases.LOOP_LEADER))
    running = operations.c.state == OperationState.RUNNING.value
    ops = _first(uow, operations, operations.c.created, running)
    unsent = _first(uow, outbox_table, outbox_table.c.created, outbox_table.c.sent.is_(None))
    due = uow.execute(
        select(func.min(timer_table.c.due)).where(timer_table.c.due <= uow.now)
    ).scalar()
    held = uow.execute(
        select(func.count())
        .select_from(billing_accounts)
        .where(billing_accounts.c.held_because != "")
    )
    return Measures(
        agents=_agents(uow),
        replicas=_by_state(uow, replicas, replicas.c.state != "EXITED"),
        hosts=_by_state(uow, hosts, hosts.c.state != "VIRTUAL"),
        queued_resources=_by_state(
            uow, queued_resources, queued_resources.c.live_name.is_not(None)
        ),
        operations_running=ops[0],
        operation_oldest_seconds=0.0 if ops[1] is None else uow.now.seconds_since(ops[1]),
        outbox_unsent=unsent[0],
        outbox_oldest_seconds=0.0
        if unsent[1] is None
        else max(0.0, uow.real_now.seconds_since(unsent[1])),
        timer_overdue_seconds=0.0 if due is None else uow.now.seconds_since(due),
        leader="" if lease is None or lease["until"] <= uow.real_now else lease["owner"],
        leader_fence=0 if lease is None else lease["fence"],
        clock_lag_seconds=uow.clock.lag_seconds(uow.real_now),
        accounts_held=int(held.scalar_one()),
    )


def _agents(uow: UnitOfWork) -> Mapping[str, int]:
    living = {agent.agent_id for agent in agent_rows.list_living(uow)}
    found: dict[str, int] = {}
    for agent in agent_rows.list_all(uow):
        state = (
            agent.state.value
            if agent.agent_id in living or agent.state.value == "REMOVED"
            else GONE
        )
        found[state] = found.get(state, 0) + 1
    return found


def _by_state(uow: UnitOfWork, table: Table, living: ColumnElement[bool]) -> Mapping[str, int]:
    query = select(table.c.state, func.count().label("count")).where(living).group_by(table.c.state)
    return {row["state"]: row["count"] for row in uow.all(query.order_by(table.c.state))}


def _first(
    uow: UnitOfWork, table: Table, moment: Column[Any], which: ColumnElement[bool]
) -> tuple[int, Any]:
    """(how many, the oldest)."""
    query = (
        select(func.count().label("count"), func.min(moment).label("oldest"))
        .select_from(table)
        .where(which)
    )
    found = uow.all(query)[0]
    return int(found["count"]), found["oldest"]
