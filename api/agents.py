"""What agents, replicas and host servers call, whose tokens carry no role, so that they may call nothing else; and the
hosts of a node, as their users see and materialise them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from podyard.api import deps
from podyard.base.clock import RealTime
from podyard.base.errors import invalid
from podyard.control import agents, hosts
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.host import NodeFacts, worker_environment

router = APIRouter(prefix="/podyard/v1")

METRICS_PER_EVALUATION_MAX = 64  # a model is judged by a handful
REPORT_ITEMS_MAX = 5000  # of one kind in one report: ten thousand steps a second are beyond any replica
HOSTS_PER_SYNC_MAX = 10_000  # of one agent: the most that hosts_max may say
FOLDERS_PER_SYNC_MAX = 256  # of hosts that are not running: which of them may go is no matter of seconds


class _Message(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class RegisterMessage(_Message):
    replicas_max: int = Field(ge=0, le=10_000)
    hosts_max: int = Field(ge=0, le=10_000)
    bind_address: str
    pid: int


class ReplicaSeen(_Message):
    replica: str
    fence: int
    state: str
    pid: int | None = None
    exit_code: int | None = None
    reason: str = ""
    released: bool = False


class SyncMessage(_Message):
    fence: int
    replicas: list[ReplicaSeen] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    host_folders: list[str] = Field(default_factory=list, max_length=FOLDERS_PER_SYNC_MAX)


class HostSeen(_Message):
    host: str
    generation: int
    state: str = Field(pattern="^(RUNNING|EXITED)$")
    address: str = Field(default="", max_length=64)
    metadata_address: str = Field(default="", max_length=64)
    ports: dict[str, int] = Field(default_factory=dict)
    ssh_host_key: str = Field(default="", max_length=1024)
    scripts: dict[str, dict[str, Any]] = Field(default_factory=dict)
    guest_attributes: dict[str, dict[str, str]] | None = None
    problem: str = Field(default="", max_length=1024)


class HostSyncMessage(_Message):
    hosts: list[HostSeen] = Field(default_factory=list, max_length=HOSTS_PER_SYNC_MAX)
    known: dict[str, str] = Field(default_factory=dict)


class HostTokenMessage(_Message):
    host: str


class MaterialiseMessage(_Message):
    workers: list[int] = Field(default_factory=list, max_length=HOSTS_PER_SYNC_MAX)


class JoinMessage(_Message):
    fence: int
    address: str = Field(max_length=128)


class PointMessage(_Message):
    step: int = Field(ge=1)
    loss: float
    accuracy: float
    wall_seconds: float = Field(ge=0)
    modelled_seconds: float = Field(ge=0)


class CheckpointMessage(_Message):
    step: int = Field(ge=0)
    name: str = Field(max_length=512)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    best: bool = False


class EvaluationMessage(_Message):
    step: int = Field(ge=0)
    metrics: dict[Annotated[str, Field(max_length=64)], Annotated[float, Field(allow_inf_nan=False)]] = Field(
        max_length=METRICS_PER_EVALUATION_MAX
    )


class LineMessage(_Message):
    seq: int = Field(ge=0)
    at: str
    line: str


class ReportMessage(_Message):
    fence: int
    state: str = Field(pattern="^(RUNNING|SUCCEEDED|FAILED|YIELDED)$")
    error: str | None = None
    metrics: list[PointMessage] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    evaluations: list[EvaluationMessage] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    checkpoints: list[CheckpointMessage] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    pruned: list[int] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    logs: list[LineMessage] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    summary: dict[str, Any] = Field(default_factory=dict)


async def _body(request: Request) -> Any:
    return deps.parse_json(await request.body())


Body = Annotated[Any, Depends(_body)]


@router.post("/agents/{agent}:register")
def register(request: Request, agent: str, body: Body) -> dict[str, Any]:
    message, caller = deps.parse(RegisterMessage, body), deps.principal(request)
    fence = deps.write(
        request,
        lambda uow: agents.register(
            uow, caller, agent, message.replicas_max, message.hosts_max, message.bind_address, message.pid
        ),
    )
    return {"agent": agent, "fence": fence, "leaseSeconds": deps.platform(request).database.leases.agent_seconds}


@router.post("/agents/{agent}:sync")
def sync(request: Request, agent: str, body: Body) -> dict[str, Any]:
    message, caller = deps.parse(SyncMessage, body), deps.principal(request)
    seen = [agents.ReplicaReport(r.replica, r.fence, r.state, r.reason, r.released) for r in message.replicas]

    def body_of_unit(uow: UnitOfWork) -> tuple[Any, Any, Any]:
        live = agents.sync(uow, caller, agent, message.fence, seen)
        return live, hosts.wanted(uow, agent), hosts.gone(uow, message.host_folders)

    live, wanted, gone = deps.write(request, body_of_unit)
    return {
        "leaseSeconds": deps.platform(request).database.leases.agent_seconds,
        "replicas": [
            {"replica": r["replica_id"], "fence": r["fence"], "desired": r["desired"], "token": r["token"]}
            for r in live
        ],
        "hosts": [_host_wanted(host) for host in wanted],
        "goneHosts": gone,
    }


@router.post("/agents/{agent}:syncHosts")
def sync_hosts(request: Request, agent: str, body: Body) -> dict[str, Any]:
    """The host server says what it has and hears what it shall have; `nodes` are the facts that it does not know."""
    message, caller = deps.parse(HostSyncMessage, body), deps.principal(request)
    seen = [from_api_host(item) for item in message.hosts]
    wanted, news = deps.write(request, lambda uow: hosts.sync(uow, caller, agent, seen, message.known))
    return {
        "leaseSeconds": deps.platform(request).database.leases.replica_seconds,
        "hosts": [_host_wanted(host) for host in wanted],
        "nodes": {key: {"digest": digest, "facts": facts.to_json()} for key, (digest, facts) in news.items()},
    }


@router.post("/agents/{agent}:hostToken")
def host_token(request: Request, agent: str, body: Body) -> dict[str, Any]:
    """An access token of the host's service account, for its metadata server."""
    message, caller = deps.parse(HostTokenMessage, body), deps.principal(request)
    made, seconds = deps.write(request, lambda uow: hosts.token(uow, caller, agent, message.host))
    return {"accessToken": made, "expiresIn": seconds}


@router.get("/projects/{project}/locations/{zone}/nodes/{node}/hosts")
def list_hosts(request: Request, project: str, zone: str, node: str) -> dict[str, Any]:
    """Each host's state, addresses and environment. Asking materialises nothing."""
    caller = deps.principal(request)
    facts, rows = deps.read(request, lambda uow: hosts.list_hosts(uow, caller, project, zone, node))
    url = str(request.base_url).rstrip("/")
    return {"hosts": [to_api_host(row, facts, url) for row in rows]}


@router.post("/projects/{project}/locations/{zone}/nodes/{node}:materialise")
def materialise(request: Request, project: str, zone: str, node: str, body: Body) -> dict[str, Any]:
    caller = deps.principal(request)
    caller.require(hosts.USE, project, f"projects/{project}/locations/{zone}/nodes/{node}")
    message = deps.parse(MaterialiseMessage, body)
    url = str(request.base_url).rstrip("/")

    def body_of_unit(uow: UnitOfWork) -> dict[str, Any]:
        rows = hosts.ask(uow, caller, project, zone, node, message.workers)
        facts, _ = hosts.list_hosts(uow, caller, project, zone, node)
        return {"hosts": [to_api_host(row, facts, url) for row in rows]}

    return deps.write(request, body_of_unit)


@router.post("/replicas/{replica}:join")
def join(request: Request, replica: str, body: Body) -> dict[str, Any]:
    message, caller = deps.parse(JoinMessage, body), deps.principal(request)
    peers = deps.write(request, lambda uow: agents.join(uow, caller, replica, message.fence, message.address))
    if peers is None:
        return {"ready": False, "peers": []}
    return {
        "ready": True,
        "peers": [
            {
                "processIndex": p["rank"],
                "hostIndices": p["host_indices"],
                "address": p["address"],
                "agent": p["agent_id"],
            }
            for p in peers
        ],
    }


@router.post("/replicas/{replica}:report")
def report(request: Request, replica: str, body: Body) -> dict[str, Any]:
    message, caller = deps.parse(ReportMessage, body), deps.principal(request)
    progress = from_api_report(message)
    desired = deps.write(request, lambda uow: agents.report(uow, caller, replica, progress))
    return {"desired": desired, "leaseSeconds": deps.platform(request).database.leases.replica_seconds}


@router.get("/replicas/{replica}")
def specification(request: Request, replica: str) -> dict[str, Any]:
    caller = deps.principal(request)
    return dict(deps.read(request, lambda uow: agents.specification(uow, caller, replica)))


@router.get("/agents")
def list_agents(request: Request) -> dict[str, Any]:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: agents.list_agents(uow, caller, "*"))
    return {
        "agents": [
            {
                "agent": row["agent_id"],
                "bindAddress": row["bind_address"],
                "replicasMax": row["replicas_max"],
                "hostsMax": row["hosts_max"],
                "pid": row["pid"],
                "seenTime": row["seen"].rfc3339(),
            }
            for row in found
        ]
    }


def _host_wanted(host: hosts.HostWanted) -> dict[str, Any]:
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
    )


def to_api_host(row: Mapping[str, Any], facts: NodeFacts, url: str) -> dict[str, Any]:
    ports = row["port_map"] if row["state"] == "RUNNING" else {}
    address = row["bind_address"] if ports else None
    metadata_address = row["metadata_address"] or None
    return {
        "worker": row["host_index"],
        "host": row["host_id"],
        "state": row["state"],
        "problem": row["problem"],
        "generation": row["generation"],
        "internalIp": row["internal_ip"],
        "externalIp": row["external_ip"],
        "address": address or "",
        "ports": ports,
        "metadataAddress": metadata_address or "",
        "sshHostKey": row["ssh_host_key"],
        "scripts": row["scripts"],
        "environment": worker_environment(facts, row["host_index"], metadata_address=metadata_address, url=url),
    }


def from_api_report(message: ReportMessage) -> agents.Progress:
    try:
        lines = [(line.seq, RealTime.from_rfc3339(line.at), line.line) for line in message.logs]
    except ValueError as error:
        raise invalid(str(error), "logs") from None
    return agents.Progress(
        fence=message.fence,
        state=message.state,
        error=message.error,
        points=[point.model_dump() for point in message.metrics],
        evaluations=[evaluation.model_dump() for evaluation in message.evaluations],
        checkpoints=[saved.model_dump() for saved in message.checkpoints],
        pruned=message.pruned,
        lines=lines,
        summary=message.summary,
    )
