"""Agents: one process per machine, which pulls what to run there. Calls with an old fence are
refused.

The platform's own agent has its token from the data folder. Agents of other machines trade a
one-time token for a name and a token (`join`), which they change each day (`rotate`).
"""

from __future__ import annotations

import dataclasses

from podyard.base.clock import RealTime
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid, not_found
from podyard.base.ids import check_resource_id
from podyard.base.rng import secret_token
from podyard.control.access import identity
from podyard.db.access import credentials
from podyard.db.compute import hosts
from podyard.db.jobs import replicas
from podyard.db.platform import agents
from podyard.db.store import outbox
from podyard.db.store.transition import move
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import lists
from podyard.domain.agent import AGENT, AgentRecord, AgentState, Declared, JoinToken
from podyard.domain.listing import Facet, ListQuery, RowPage
from podyard.domain.principal import Principal

POKE_TASK = "podyard.poke_agent"
JOIN_PREFIX = "pdj_"
JOIN_SECONDS = 3600.0
JOIN_SECONDS_MAX = 7 * 86_400.0  # a longer one is forgotten in a notebook
JOIN_TOKENS_MAX = 1000  # that may still be used: a whole room of machines at once
# how long a token that has expired is still known by what became of it
KEPT_SECONDS = 30 * 86_400.0
OVERLAP_SECONDS = 3600.0  # the token before the newest: a host server may read it a little later


@dataclasses.dataclass(frozen=True, slots=True)
class AskedRegistration:
    """The registration of a process that takes an agent's name. `declared` None: it is of an
    earlier release."""

    replicas_max: int
    hosts_max: int
    bind_address: str
    pid: int
    declared: Declared | None = None
    clock_offset_millis: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class AgentUse:
    """An agent, and how many replicas and hosts are live on it."""

    agent: AgentRecord
    replicas: int
    hosts: int


def create_join_token(
    uow: UnitOfWork, principal: Principal, seconds: float | None
) -> tuple[JoinToken, str]:
    """(token, its secret: the only time that it can be seen)."""
    principal.require("podyard.agents.join", "*", "agents")
    seconds = JOIN_SECONDS if seconds is None else seconds
    if not 0 < seconds <= JOIN_SECONDS_MAX:
        raise invalid(
            f"ttl must be more than 0 s and at most {JOIN_SECONDS_MAX / 86_400:g} days", "ttl"
        )
    agents.forget_tokens(uow, uow.real_now.plus_seconds(-KEPT_SECONDS))
    if agents.count_open_tokens(uow) >= JOIN_TOKENS_MAX:
        text = (
            f"{JOIN_TOKENS_MAX} join tokens are open already: use them, or wait until they expire"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    secret = JOIN_PREFIX + secret_token()
    now = uow.real_now
    token = JoinToken(identity.hash_of(secret), now, principal.email, now.plus_seconds(seconds))
    agents.add_token(uow, token)
    return token, secret


def check_join_token(uow: UnitOfWork, secret: str, *, lock: bool = False) -> JoinToken:
    """Raises UNAUTHENTICATED for an unknown token, FAILED_PRECONDITION for one that was used or has
    expired."""
    token = agents.find_token(uow, identity.hash_of(secret), lock=lock)
    again = "make another with `podyard agent token`"
    if token is None:
        raise PodyardError(Code.UNAUTHENTICATED, f"the join token is not known: {again}")
    if token.used is not None:
        raise failed_precondition(
            f"agent {token.used_by} has used this join token at {token.used.rfc3339()}: {again}"
        )
    if token.expires <= uow.real_now:
        raise failed_precondition(f"the join token expired at {token.expires.rfc3339()}: {again}")
    return token


def join(
    uow: UnitOfWork, secret: str, agent_id: str, asked: AskedRegistration
) -> tuple[AgentRecord, str]:
    """(the agent, its token: the only time that it can be seen). The join token is used up."""
    token = check_join_token(uow, secret, lock=True)
    check_resource_id(agent_id, "name")
    before = agents.find(uow, agent_id, lock=True)
    if before is not None and before.state is not AgentState.REMOVED:
        raise PodyardError(
            Code.ALREADY_EXISTS,
            f"an agent named {agent_id} exists already "
            f"({before.host_name or before.bind_address}): "
            "choose another with --name, or remove that one (`podyard agent remove`)",
        )
    fresh = _register(uow, before, agent_id, asked, fence=0 if before is None else before.fence)
    # Nothing is placed on it before its process has registered.
    unseen = RealTime(0)
    fresh = dataclasses.replace(
        fresh, seen=unseen, joined=uow.real_now, joined_by=token.created_by, problem=""
    )
    where = f"joined from {asked.bind_address} with a token of {token.created_by}"
    if before is None:
        agents.store(uow, None, fresh, reason=where)
    else:
        fresh = move(uow, before, "join", reason=where, changed=fresh)
    agents.use_token(uow, token, agent_id)
    return fresh, _new_token(uow, agent_id)


def register(uow: UnitOfWork, principal: Principal, agent_id: str, asked: AskedRegistration) -> int:
    """Makes the caller the agent of this name and returns its fence: an older process of that name
    is refused.

    Raises FAILED_PRECONDITION while a process of this name lives elsewhere: two machines have one
    identity.
    """
    require_agent(principal, agent_id)
    before = agents.find(uow, agent_id, lock=True)
    if (
        before is not None
        and asked.declared is not None
        and _lives_elsewhere(uow, before, asked.declared.place)
    ):
        raise failed_precondition(
            f"agent {agent_id} runs already, as process {before.pid} of {before.host_name} "
            f"({before.bind_address}): "
            "stop that one, or join under another name"
        )
    fence = 1 if before is None else before.fence + 1
    agent = _register(uow, before, agent_id, asked, fence)
    agents.store(uow, before, agent, reason=f"registered from {asked.bind_address}")
    return fence


def _lives_elsewhere(uow: UnitOfWork, before: AgentRecord, place: str) -> bool:
    if not before.place or before.place == place:
        return False
    return before.seen >= uow.real_now.plus_seconds(-uow.leases.agent_seconds)


def _register(
    uow: UnitOfWork, before: AgentRecord | None, agent_id: str, asked: AskedRegistration, fence: int
) -> AgentRecord:
    now, declared = uow.real_now, asked.declared
    if before is None:
        found = AgentRecord(
            agent_id,
            asked.bind_address,
            asked.replicas_max,
            asked.hosts_max,
            asked.pid,
            fence,
            now,
            now,
        )
    else:
        found = dataclasses.replace(
            before,
            bind_address=asked.bind_address,
            replicas_max=asked.replicas_max,
            hosts_max=asked.hosts_max,
            pid=asked.pid,
            fence=fence,
            registered=now,
            seen=now,
        )
    if declared is None:
        return found
    return dataclasses.replace(
        found,
        release=declared.release,
        host_name=declared.host_name,
        place=declared.place,
        cores=declared.cores,
        memory_bytes=declared.memory_bytes,
        kernels=declared.kernels,
        runtimes=list(declared.runtimes),
        labels=dict(declared.labels),
        clock_offset_millis=asked.clock_offset_millis,
    )


def rotate(uow: UnitOfWork, principal: Principal, agent_id: str) -> str:
    """A new token of the agent; those before it work for a little longer."""
    require_agent(principal, agent_id)
    credentials.expire_agent(uow, agent_id, uow.real_now.plus_seconds(OVERLAP_SECONDS))
    return _new_token(uow, agent_id)


def _new_token(uow: UnitOfWork, agent_id: str) -> str:
    credentials.sweep_expired(uow)
    token = identity.TOKEN_PREFIX + secret_token()
    identity.keep_agent_token(uow, token, agent_id)
    return token


def note_problem(uow: UnitOfWork, agent_id: str, problem: str) -> None:
    """Keeps what was refused to a process of this name, for the people who look at the agent."""
    before = agents.find(uow, agent_id, lock=True)
    if before is not None:
        agents.store(uow, before, dataclasses.replace(before, problem=problem))


def note_seen(uow: UnitOfWork, agent_id: str, fence: int) -> None:
    """Renews the agent's lease. Raises ABORTED for an older process of its name."""
    agent = agents.find(uow, agent_id)
    if agent is None or agent.fence != fence:
        raise PodyardError(
            Code.ABORTED, f"agent {agent_id} has registered again: fence {fence} is out of date"
        )
    agents.store(uow, agent, dataclasses.replace(agent, seen=uow.real_now))


def poke(uow: UnitOfWork, agent_id: str) -> None:
    """Makes the agent look at once for what has changed."""
    outbox.put(uow, f"agent.{agent_id}", POKE_TASK, [agent_id])


def require_agent(principal: Principal, agent_id: str) -> None:
    """Raises PERMISSION_DENIED unless the caller's token is that of this agent."""
    if principal.agent_id != agent_id:
        raise PodyardError(
            Code.PERMISSION_DENIED,
            f"Permission 'podyard.agents.sync' denied on resource 'agents/{agent_id}' (or it "
            "might not exist).",
        )


def list_uses(uow: UnitOfWork, principal: Principal) -> list[AgentUse]:
    """All that are not removed, by name."""
    principal.require("podyard.agents.list", "*", "agents")
    running, live_hosts = replicas.live_counts(uow), hosts.live_counts(uow)
    return [
        AgentUse(agent, running.get(agent.agent_id, 0), live_hosts.get(agent.agent_id, 0))
        for agent in agents.list_all(uow)
        if agent.state is not AgentState.REMOVED
    ]


def use_page(
    uow: UnitOfWork, principal: Principal, query: ListQuery
) -> tuple[RowPage[AgentUse], list[Facet]]:
    """One page of them, as the console's list shows it."""
    principal.require("podyard.agents.list", "*", "agents")
    running, live_hosts, found = (
        replicas.live_counts(uow),
        hosts.live_counts(uow),
        lists.agent_page(uow, query),
    )
    rows = [
        AgentUse(one, running.get(one.agent_id, 0), live_hosts.get(one.agent_id, 0))
        for one in found.rows
    ]
    return RowPage(rows, found.before, found.after), lists.agent_facets(uow)


def get_use(uow: UnitOfWork, principal: Principal, agent_id: str) -> AgentUse:
    """Raises NOT_FOUND."""
    principal.require("podyard.agents.list", "*", f"agents/{agent_id}")
    running, live_hosts = replicas.live_counts(uow), hosts.live_counts(uow)
    return AgentUse(_existing(uow, agent_id), running.get(agent_id, 0), live_hosts.get(agent_id, 0))


def drain(uow: UnitOfWork, principal: Principal, agent_id: str) -> AgentRecord:
    """Keeps new replicas and hosts off an agent. What runs there stays until it ends."""
    principal.require("podyard.agents.drain", "*", f"agents/{agent_id}")
    agent = _existing(uow, agent_id)
    if agent.state is AgentState.DRAINING:
        return agent
    return move(uow, agent, "drain", reason=f"drained by {principal.email}")


def resume(uow: UnitOfWork, principal: Principal, agent_id: str) -> AgentRecord:
    """Lets new replicas and hosts on an agent again."""
    principal.require("podyard.agents.drain", "*", f"agents/{agent_id}")
    agent = _existing(uow, agent_id)
    if agent.state is AgentState.READY:
        return agent
    return move(uow, agent, "resume", reason=f"resumed by {principal.email}")


def remove(uow: UnitOfWork, principal: Principal, agent_id: str, *, force: bool) -> None:
    """Ends an agent's tokens and forgets its name. Raises FAILED_PRECONDITION while something runs
    on it, unless `force`, or it is silent; and for the platform's own agent."""
    principal.require("podyard.agents.remove", "*", f"agents/{agent_id}")
    agent = _existing(uow, agent_id)
    if agent.joined is None:
        raise failed_precondition(
            f"agent {agent_id} is the platform's own: it runs as long as `podyard up`"
        )
    running, live_hosts = len(replicas.list_live(uow, agent_id)), len(hosts.live(uow, agent_id))
    is_silent = agent.seen < uow.real_now.plus_seconds(-uow.leases.agent_seconds)
    if (running or live_hosts) and not force and not is_silent:
        raise failed_precondition(
            f"agent {agent_id} runs {running} replicas and {live_hosts} hosts: drain it and wait "
            "until they end, "
            "or remove it with --force, and they end now"
        )
    credentials.revoke_agent(uow, agent_id)
    assert AGENT.allows(agent.state, "remove"), agent
    move(uow, agent, "remove", reason=f"removed by {principal.email}")


def _existing(uow: UnitOfWork, agent_id: str) -> AgentRecord:
    agent = agents.find(uow, agent_id, lock=True)
    if agent is None or agent.state is AgentState.REMOVED:
        raise not_found(f"agents/{agent_id}")
    return agent
