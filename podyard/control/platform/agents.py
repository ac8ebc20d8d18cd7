"""Agents: one process per machine, which pulls what to run there. Calls with an old fence are refused."""

from __future__ import annotations

import dataclasses

from podyard.base.errors import Code, PodyardError
from podyard.db import agents, outbox
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.agent import AgentRecord
from podyard.domain.principal import Principal

POKE_TASK = "podyard.poke_agent"


def register(
    uow: UnitOfWork,
    principal: Principal,
    agent_id: str,
    replicas_max: int,
    hosts_max: int,
    bind_address: str,
    pid: int,
) -> int:
    """Makes the caller the agent of this name and returns its fence: an older process of that name is refused."""
    require_agent(principal, agent_id)
    before = agents.find(uow, agent_id, lock=True)
    fence = 1 if before is None else before.fence + 1
    now = uow.real_now
    agent = AgentRecord(agent_id, bind_address, replicas_max, hosts_max, pid, fence, registered=now, seen=now)
    agents.store(uow, before, agent)
    return fence


def note_seen(uow: UnitOfWork, agent_id: str, fence: int) -> None:
    """Renews the agent's lease. Raises ABORTED for an older process of its name."""
    agent = agents.find(uow, agent_id)
    if agent is None or agent.fence != fence:
        raise PodyardError(Code.ABORTED, f"agent {agent_id} has registered again: fence {fence} is out of date")
    agents.store(uow, agent, dataclasses.replace(agent, seen=uow.real_now))


def poke(uow: UnitOfWork, agent_id: str) -> None:
    """Makes the agent look at once for what has changed."""
    outbox.put(uow, f"agent.{agent_id}", POKE_TASK, [agent_id])


def require_agent(principal: Principal, agent_id: str) -> None:
    """Raises PERMISSION_DENIED unless the caller's token is that of this agent."""
    if principal.agent_id != agent_id:
        raise PodyardError(
            Code.PERMISSION_DENIED,
            f"Permission 'podyard.agents.sync' denied on resource 'agents/{agent_id}' (or it might not exist).",
        )


def list_agents(uow: UnitOfWork, principal: Principal) -> list[AgentRecord]:
    principal.require("podyard.agents.list", "*", "agents")
    return agents.list_all(uow)
