"""Agents of machines: how they join and register, and what their operators see and do."""

from __future__ import annotations

import logging
from typing import Annotated, NotRequired
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from podyard import __version__
from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base import reach
from podyard.base.clock import NANOS_PER_SECOND, RealTime
from podyard.base.durations import parse_duration
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.platform import agents
from podyard.domain.agent import (
    LABELS_MAX,
    Declared,
    check_address,
    check_clock,
    check_declared,
    check_release,
    clock_warning,
    is_loopback,
    unreachable,
)
from podyard.http import join_command

logger = logging.getLogger(__name__)
router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)

RUNTIMES_MAX = 64  # environments of runtime versions on one machine
Count = Annotated[int, Field(ge=0, lt=2**31)]
Bytes = Annotated[int, Field(ge=0, lt=2**63)]
Text = Annotated[str, Field(max_length=256)]


class _Message(deps.Asked):
    model_config = ConfigDict(strict=True)


class JoinTokenMessage(_Message):
    ttl: str | None = None


class ProbeMessage(_Message):
    """A probe: for a moment the agent answers with this number at this address."""

    port: int = Field(ge=1, lt=2**16)
    number: str = Field(min_length=16, max_length=64)


class MachineMessage(_Message):
    """The machine that an agent declares. `now`: its clock. `place` tells its machine and folder
    from all others."""

    release: Text
    host_name: Text
    place: str = Field(max_length=64)
    cores: Count
    cores_measured: Count
    memory_bytes: Bytes
    memory_bytes_measured: Bytes
    kernels: Text
    runtimes: list[Text] = Field(default_factory=list, max_length=RUNTIMES_MAX)
    labels: dict[Text, Text] = Field(default_factory=dict, max_length=LABELS_MAX)
    now: str


class RegisterMessage(_Message):
    replicas_max: int = Field(ge=0, le=10_000)
    hosts_max: int = Field(ge=0, le=10_000)
    bind_address: str = Field(max_length=64)
    pid: Count
    machine: MachineMessage | None = None
    probe: ProbeMessage | None = None


class JoinYardMessage(RegisterMessage):
    token: Text
    name: str = Field(max_length=64)
    machine: MachineMessage
    probe: ProbeMessage


class RemoveMessage(_Message):
    force: bool = False


class JoinTokenAnswer(TypedDict):
    """`url`: how other machines reach this platform. `token` has the fingerprint of its authority
    after a dot, where there is one."""

    url: str
    token: str
    expireTime: Timestamp


class JoinedYard(TypedDict):
    """`token` is shown only here. `brokerUrl`: empty where the platform's broker is its own
    machine's."""

    agent: str
    token: str
    brokerUrl: str
    leaseSeconds: float
    replicaLeaseSeconds: float
    warnings: list[str]


class Registered(TypedDict):
    agent: str
    fence: int
    leaseSeconds: float
    warnings: list[str]


class Rotated(TypedDict):
    token: str


class AgentAnswer(TypedDict):
    """`clockOffsetSeconds`: how far its clock is ahead of the API's. `problem`: what was last
    refused to it."""

    agent: str
    state: str
    bindAddress: str
    replicasMax: int
    hostsMax: int
    replicas: int
    hosts: int
    pid: int
    seenTime: Timestamp
    registerTime: Timestamp
    joinTime: NotRequired[Timestamp]
    joinedBy: str
    release: str
    hostName: str
    cores: int
    memoryBytes: int
    kernels: str
    runtimes: list[str]
    labels: dict[str, str]
    clockOffsetSeconds: float
    problem: str


class Agents(TypedDict):
    agents: list[AgentAnswer]


@router.post("/agents:createJoinToken", responses=deps.errors(429))
def create_join_token(
    request: Request, body: Annotated[deps.Body, JoinTokenMessage]
) -> JoinTokenAnswer:
    """Make a one-time token with which another machine's agent joins."""
    caller = deps.principal(request)
    caller.require("podyard.agents.join", "*", "agents")
    message = deps.parse(JoinTokenMessage, body)
    seconds = _seconds(message.ttl)
    token, secret = deps.write(request, lambda uow: agents.create_join_token(uow, caller, seconds))
    settings = deps.platform(request).settings
    return {
        "url": join_command.address(settings, str(request.base_url)),
        "token": join_command.token(settings, secret),
        "expireTime": token.expires.rfc3339(),
    }


@router.post("/agents:join", responses=deps.errors(401, 409))
def join(request: Request, body: Annotated[deps.Body, JoinYardMessage]) -> JoinedYard:
    """Trade a one-time token for the identity of an agent. No other credential is needed."""
    message = deps.parse(JoinYardMessage, body)
    platform = deps.platform(request)
    try:
        # Before anything is dialled: who has no token must not make us knock at addresses.
        platform.database.read(lambda uow: agents.check_join_token(uow, message.token))
        if message.name == platform.settings.agent_id:
            raise invalid(
                f"name {message.name!r} is that of the platform's own agent: choose another", "name"
            )
        asked = _read_registration(request, message)
        _probe(message)
        agent, token = platform.database.run(
            lambda uow: agents.join(uow, message.token, message.name, asked)
        )
    except PodyardError as error:
        logger.warning(
            "agent %s at %s may not join: %s", message.name, message.bind_address, error.message
        )
        raise
    logger.info("agent %s has joined from %s", agent.agent_id, agent.bind_address)
    leases = platform.database.leases
    return {
        "agent": agent.agent_id,
        "token": token,
        "brokerUrl": _broker_for_others(platform.settings.broker_url),
        "leaseSeconds": leases.agent_seconds,
        "replicaLeaseSeconds": leases.replica_seconds,
        "warnings": _warnings(asked.clock_offset_millis),
    }


@router.post("/agents/{agent}:register")
def register(
    request: Request, agent: str, body: Annotated[deps.Body, RegisterMessage]
) -> Registered:
    """A process takes the agent's name: it says what its machine has, and gets the fence of its
    calls."""
    caller = deps.principal(request)
    agents.require_agent(caller, agent)
    message = deps.parse(RegisterMessage, body)
    try:
        asked = _read_registration(request, message)
        _probe(message)
        fence = deps.write(request, lambda uow: agents.register(uow, caller, agent, asked))
    except PodyardError as error:
        if error.code in (Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT):
            _note_refusal(request, agent, message, error)
        raise
    return {
        "agent": agent,
        "fence": fence,
        "leaseSeconds": deps.platform(request).database.leases.agent_seconds,
        "warnings": _warnings(asked.clock_offset_millis),
    }


@router.post("/agents/{agent}:rotate")
def rotate(request: Request, agent: str) -> Rotated:
    """A new token of the agent; the one before works for a little longer."""
    caller = deps.principal(request)
    agents.require_agent(caller, agent)
    return {"token": deps.write(request, lambda uow: agents.rotate(uow, caller, agent))}


@router.get("/agents")
def list_agents(request: Request) -> Agents:
    """List the agents."""
    caller = deps.principal(request)
    seen = deps.read(request, lambda uow: agents.list_uses(uow, caller))
    return {"agents": [to_api_agent(request, use) for use in seen]}


@router.get("/agents/{agent}", responses=deps.errors(404))
def get(request: Request, agent: str) -> AgentAnswer:
    """Show an agent: its machine, its state, and what runs on it."""
    caller = deps.principal(request)
    return to_api_agent(request, deps.read(request, lambda uow: agents.get_use(uow, caller, agent)))


@router.post("/agents/{agent}:drain", responses=deps.errors(404))
def drain(request: Request, agent: str) -> AgentAnswer:
    """Place nothing new on an agent. What runs there stays until it ends."""
    caller = deps.principal(request)
    deps.write(request, lambda uow: agents.drain(uow, caller, agent))
    return get(request, agent)


@router.post("/agents/{agent}:resume", responses=deps.errors(404))
def resume(request: Request, agent: str) -> AgentAnswer:
    """Place replicas and hosts on an agent again."""
    caller = deps.principal(request)
    deps.write(request, lambda uow: agents.resume(uow, caller, agent))
    return get(request, agent)


@router.post("/agents/{agent}:remove", responses=deps.errors(404))
def remove(request: Request, agent: str, body: Annotated[deps.Body, RemoveMessage]) -> deps.Empty:
    """Remove an agent: its tokens end at once."""
    caller = deps.principal(request)
    caller.require("podyard.agents.remove", "*", f"agents/{agent}")
    message = deps.parse(RemoveMessage, body)
    deps.write(request, lambda uow: agents.remove(uow, caller, agent, force=message.force))
    return {}


def to_api_agent(request: Request, use: agents.AgentUse) -> AgentAnswer:
    agent, platform = use.agent, deps.platform(request)
    shown: AgentAnswer = {
        "agent": agent.agent_id,
        "state": agent.shown_state(platform.clock.now(), platform.database.leases.agent_seconds),
        "bindAddress": agent.bind_address,
        "replicasMax": agent.replicas_max,
        "hostsMax": agent.hosts_max,
        "replicas": use.replicas,
        "hosts": use.hosts,
        "pid": agent.pid,
        "seenTime": agent.seen.rfc3339(),
        "registerTime": agent.registered.rfc3339(),
        "joinedBy": agent.joined_by,
        "release": agent.release,
        "hostName": agent.host_name,
        "cores": agent.cores,
        "memoryBytes": agent.memory_bytes,
        "kernels": agent.kernels,
        "runtimes": list(agent.runtimes),
        "labels": dict(agent.labels),
        "clockOffsetSeconds": agent.clock_offset_millis / 1000,
        "problem": agent.problem or clock_warning(agent.clock_offset_millis),
    }
    if agent.joined is not None:
        shown["joinTime"] = agent.joined.rfc3339()
    return shown


def _read_registration(request: Request, message: RegisterMessage) -> agents.AskedRegistration:
    """Return what the agent declares, if this platform takes such an agent."""
    machine = message.machine
    if machine is None:
        return agents.AskedRegistration(
            message.replicas_max, message.hosts_max, message.bind_address, message.pid
        )
    check_release(machine.release, __version__)
    check_address(message.bind_address)
    declared = Declared(
        **{**machine.model_dump(), "runtimes": tuple(machine.runtimes), "now": _now(machine.now)}
    )
    check_declared(declared, message.replicas_max)
    return agents.AskedRegistration(
        replicas_max=message.replicas_max,
        hosts_max=message.hosts_max,
        bind_address=message.bind_address,
        pid=message.pid,
        declared=declared,
        clock_offset_millis=check_clock(declared.now, deps.platform(request).clock.now()),
    )


def _probe(message: RegisterMessage) -> None:
    """Dials the advertised address, outside of every unit of work. Raises FAILED_PRECONDITION."""
    if message.probe is not None:
        why = reach.why_not(message.bind_address, message.probe.port, message.probe.number)
        if why:
            raise unreachable(message.bind_address, why)


def _note_refusal(
    request: Request, agent: str, message: RegisterMessage, error: PodyardError
) -> None:
    logger.warning("agent %s at %s is refused: %s", agent, message.bind_address, error.message)
    text = f"refused to a process at {message.bind_address}: {error.message}"
    deps.write(request, lambda uow: agents.note_problem(uow, agent, text))


def _now(text: str) -> RealTime:
    try:
        return RealTime.from_rfc3339(text)
    except ValueError as error:
        raise invalid(str(error), "machine.now") from None


def _warnings(offset_millis: int) -> list[str]:
    return [text] if (text := clock_warning(offset_millis)) else []


def _broker_for_others(url: str | None) -> str:
    """The broker's URL if other machines reach it by that."""
    host = urlsplit(url or "").hostname or ""
    return url if url and host and not is_loopback(host) else ""


def _seconds(ttl: str | None) -> float | None:
    if ttl is None:
        return None
    try:
        return parse_duration(ttl) / NANOS_PER_SECOND
    except ValueError as error:
        raise invalid(str(error), "ttl") from None
