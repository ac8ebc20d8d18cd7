"""The routes of an agent's host server; and the hosts of a node, as their users see and materialise
them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.control.compute import host_connections, hosts, notebooks, slice_networks
from podyard.control.compute.slice_networks import SliceNetwork
from podyard.control.platform.agents import require_agent
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import NodeFacts, worker_environment
from podyard.domain.host_record import HostRecord, HostState
from podyard.domain.ran_module import MODULES_KEPT_MAX, RanModule

router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)

HOSTS_PER_SYNC_MAX = 10_000  # of one agent: the most that hosts_max may say
TAKEN_PER_SYNC_MAX = 100  # hosts whose address another program has: the first hundred say enough

# What a column for them holds, on PostgreSQL as well.
Count = Annotated[int, Field(ge=0, lt=2**31)]


class _HostMessage(deps.Asked):
    model_config = ConfigDict(strict=True)


# PostgreSQL refuses infinity in JSON.
Finite = Annotated[float, Field(allow_inf_nan=False)]


class RanModuleSeen(_HostMessage):
    name: str = Field(max_length=256)
    runs: Annotated[int, Field(ge=0, lt=2**53)]
    seconds: Finite | None
    wall_seconds: Finite | None
    mfu: Finite | None
    hfu: Finite | None = None
    fits: bool | None
    verdict: str = Field(max_length=1024)
    note: str = Field(max_length=1024)


class HostSeen(_HostMessage):
    host: str
    generation: Count
    state: str = Field(pattern="^(STARTING|RUNNING|EXITED)$")
    address: str = Field(default="", max_length=64)
    metadata_address: str = Field(default="", max_length=64)
    ports: dict[str, Annotated[int, Field(ge=0, lt=2**16)]] = Field(default_factory=dict)
    ssh_host_key: str = Field(default="", max_length=1024)
    scripts: dict[str, dict[str, Any]] = Field(default_factory=dict)
    guest_attributes: dict[str, dict[str, str]] | None = None
    problem: str = Field(default="", max_length=1024)
    isolation: str = Field(default="", max_length=1024)
    software: str = Field(default="", max_length=1024)
    programs: list[RanModuleSeen] | None = Field(default=None, max_length=MODULES_KEPT_MAX)


class HostSyncMessage(_HostMessage):
    hosts: list[HostSeen] = Field(default_factory=list, max_length=HOSTS_PER_SYNC_MAX)
    known: dict[str, str] = Field(default_factory=dict)
    taken: dict[str, Annotated[str, Field(max_length=256)]] | None = Field(
        default=None, max_length=TAKEN_PER_SYNC_MAX
    )


class ConnectMessage(_HostMessage):
    host: str


class HostTokenMessage(_HostMessage):
    host: str


class MaterialiseMessage(_HostMessage):
    workers: list[Count] = Field(default_factory=list, max_length=HOSTS_PER_SYNC_MAX)


class NotebookMessage(_HostMessage):
    worker: Count = 0


class NotebookAnswer(TypedDict):
    """`url`: with the token, for a browser on the machine of the host; empty until the host runs.
    Over ssh the notebook is `-L PORT:notebook:80`. `state`, `problem`, `software`: of the host."""

    url: str
    token: str
    state: str
    problem: str
    software: str


class HostWantedAnswer(TypedDict):
    host: str
    generation: int
    node: str
    index: int
    desired: str


class HostToRun(HostWantedAnswer):
    """`keySeed`: the private ssh key, hexadecimal."""

    keySeed: str


class NodeNews(TypedDict):
    """`facts`: what the hosts of the node know of it (domain/host.py)."""

    digest: str
    facts: dict[str, Any]


class ListenersOfNode(TypedDict):
    node: str
    first: int
    count: int


class ListenersAnswer(TypedDict):
    """Hosts that listen for ssh, by the numbers of their addresses."""

    base: int
    nodes: list[ListenersOfNode]


class NetworkPeerAnswer(TypedDict):
    agent: str
    address: str
    port: int


class SwitchAnswer(TypedDict):
    """A slice that has hosts of other agents, too. `node`: one of its nodes here; `key`:
    hexadecimal."""

    node: str
    key: str
    peers: list[NetworkPeerAnswer]


class HostsSynced(TypedDict):
    leaseSeconds: float
    hosts: list[HostToRun]
    nodes: dict[str, NodeNews]
    listeners: ListenersAnswer
    switches: list[SwitchAnswer]


class HostConnection(TypedDict):
    """The address of a host. `address` and `port` are those of its ssh server once it is
    RUNNING."""

    state: str
    agent: str
    problem: str
    address: str
    port: int


class HostToken(TypedDict):
    accessToken: str
    expiresIn: int


class HostAnswer(TypedDict):
    """`scripts`: what became of the start-up and the shutdown script."""

    worker: int
    host: str
    state: str
    problem: str
    isolation: str
    software: str
    programs: list[dict[str, Any]]
    generation: int
    internalIp: str
    externalIp: str
    address: str
    ports: dict[str, int]
    metadataAddress: str
    sshHostKey: str
    scripts: dict[str, dict[str, Any]]
    environment: dict[str, str]


class Hosts(TypedDict):
    hosts: list[HostAnswer]


@router.post("/agents/{agent}:syncHosts")
def sync_hosts(
    request: Request, agent: str, body: Annotated[deps.MendedBody, HostSyncMessage]
) -> HostsSynced:
    """Takes the host server's report and answers with the hosts to run; `nodes` are the facts that
    it lacks."""
    caller = deps.principal(request)
    require_agent(caller, agent)
    message = deps.parse(HostSyncMessage, body)
    seen = [from_api_host(item) for item in message.hosts]

    def body_of_unit(uow: UnitOfWork) -> tuple[Any, Any, Any, list[SliceNetwork]]:
        wanted, news = hosts.sync(uow, caller, agent, seen, message.known)
        if message.taken is not None:
            host_connections.note_taken(uow, message.taken)
        listening = host_connections.listeners(uow) if listens(request, agent) else (0, [])
        return (
            wanted,
            news,
            listening,
            slice_networks.of_agent(uow, agent, {host.node_key for host in wanted}),
        )

    wanted, news, (base, listening), networks = deps.write(request, body_of_unit)
    return {
        "leaseSeconds": deps.platform(request).database.leases.replica_seconds,
        "hosts": [{**to_api_wanted(host), "keySeed": host.key_seed.hex()} for host in wanted],
        "nodes": {
            key: {"digest": digest, "facts": facts.to_json()}
            for key, (digest, facts) in news.items()
        },
        "listeners": {
            "base": base,
            "nodes": [
                {"node": item.node_key, "first": item.first, "count": item.count}
                for item in listening
            ],
        },
        "switches": [_to_api_switch(network) for network in networks],
    }


def _to_api_switch(network: SliceNetwork) -> SwitchAnswer:
    peers: list[NetworkPeerAnswer] = [
        {"agent": peer.agent_id, "address": peer.address, "port": peer.port}
        for peer in network.peers
    ]
    return {"node": network.node_key, "key": network.key.hex(), "peers": peers}


@router.post("/agents/{agent}:connectHost", responses=deps.errors(429))
def connect_host(
    request: Request, agent: str, body: Annotated[deps.Body, ConnectMessage]
) -> HostConnection:
    """Materialises a host after the first connection to its ssh listener, and returns its
    address."""
    caller = deps.principal(request)
    require_agent(caller, agent)
    message = deps.parse(ConnectMessage, body)
    host = deps.write(
        request, lambda uow: host_connections.connect(uow, caller, agent, message.host)
    )
    return {
        "state": host.state,
        "agent": host.agent_id or "",
        "problem": host.problem,
        "address": host.bind_address or "",
        "port": host.port_map.get("ssh", 0),
    }


@router.post("/agents/{agent}:hostToken")
def host_token(
    request: Request, agent: str, body: Annotated[deps.Body, HostTokenMessage]
) -> HostToken:
    """An access token of the host's service account, for its metadata server."""
    caller = deps.principal(request)
    require_agent(caller, agent)
    message = deps.parse(HostTokenMessage, body)
    made, seconds = deps.write(request, lambda uow: hosts.token(uow, caller, agent, message.host))
    return {"accessToken": made, "expiresIn": seconds}


@router.get("/projects/{project}/locations/{zone}/nodes/{node}/hosts")
def list_hosts(request: Request, project: str, zone: str, node: str) -> Hosts:
    """Each host's state, addresses and environment. Asking materialises nothing."""
    caller = deps.principal(request)
    facts, found = deps.read(
        request, lambda uow: hosts.list_hosts(uow, caller, project, zone, node)
    )
    url = str(request.base_url).rstrip("/")
    return {"hosts": [to_api_host(host, facts, url) for host in found]}


@router.post(
    "/projects/{project}/locations/{zone}/nodes/{node}:materialise", responses=deps.errors(429)
)
def materialise(
    request: Request,
    project: str,
    zone: str,
    node: str,
    body: Annotated[deps.Body, MaterialiseMessage],
) -> Hosts:
    caller = deps.principal(request)
    caller.require(hosts.USE, project, f"projects/{project}/locations/{zone}/nodes/{node}")
    message = deps.parse(MaterialiseMessage, body)
    url = str(request.base_url).rstrip("/")

    def body_of_unit(uow: UnitOfWork) -> Hosts:
        asked = hosts.ask(uow, caller, project, zone, node, message.workers)
        facts, _ = hosts.list_hosts(uow, caller, project, zone, node)
        return {"hosts": [to_api_host(host, facts, url) for host in asked]}

    return deps.write(request, body_of_unit)


@router.post(
    "/projects/{project}/locations/{zone}/nodes/{node}:openNotebook", responses=deps.errors(429)
)
def open_notebook(
    request: Request,
    project: str,
    zone: str,
    node: str,
    body: Annotated[deps.Body, NotebookMessage],
) -> NotebookAnswer:
    """Materialise a host, and return where its notebook is."""
    caller = deps.principal(request)
    caller.require(hosts.USE, project, f"projects/{project}/locations/{zone}/nodes/{node}")
    worker = deps.parse(NotebookMessage, body).worker
    place = deps.write(
        request, lambda uow: notebooks.open_notebook(uow, caller, project, zone, node, worker)
    )
    return {
        "url": place.url,
        "token": place.token,
        "state": place.host.state,
        "problem": place.host.problem,
        "software": place.host.software,
    }


def listens(request: Request, agent: str) -> bool:
    """Return whether ssh listeners are this agent's business: those of the machine that the
    platform itself runs on are."""
    return agent == deps.platform(request).settings.agent_id


def to_api_wanted(host: hosts.HostWanted) -> HostWantedAnswer:
    return {
        "host": host.host_id,
        "generation": host.generation,
        "node": host.node_key,
        "index": host.index,
        "desired": "RUN" if host.run else "STOP",
    }


def from_api_host(seen: HostSeen) -> hosts.HostReport:
    return hosts.HostReport(
        host_id=seen.host,
        generation=seen.generation,
        state=seen.state,
        address=seen.address,
        metadata_address=seen.metadata_address,
        ports=seen.ports,
        ssh_host_key=seen.ssh_host_key,
        scripts=seen.scripts,
        guest_attributes=seen.guest_attributes,
        problem=seen.problem,
        isolation=seen.isolation,
        software=seen.software,
        programs=None
        if seen.programs is None
        else tuple(RanModule(**one.model_dump()) for one in seen.programs),
    )


def to_api_host(host: HostRecord, facts: NodeFacts, url: str) -> HostAnswer:
    ports = host.port_map if host.state is HostState.RUNNING else {}
    address = host.bind_address if ports else None
    metadata_address = host.metadata_address or None
    return {
        "worker": host.host_index,
        "host": host.host_id,
        "state": host.state,
        "problem": host.problem,
        "isolation": host.isolation,
        "software": host.software,
        "programs": [module.to_answer() for module in host.programs],
        "generation": host.generation,
        "internalIp": host.internal_ip,
        "externalIp": host.external_ip,
        "address": address or "",
        "ports": dict(ports),
        "metadataAddress": metadata_address or "",
        "sshHostKey": host.ssh_host_key,
        # their output is for who may read an instance's serial port
        "scripts": {
            kind: {name: value for name, value in said.items() if name != "output"}
            for kind, said in host.scripts.items()
        },
        "environment": worker_environment(
            facts, host.host_index, metadata_address=metadata_address, url=url
        ),
    }
