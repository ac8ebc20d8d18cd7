"""What agents and replicas call. Their tokens carry no role: they may call nothing else."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from podyard.api import deps
from podyard.base.clock import RealTime
from podyard.base.errors import invalid
from podyard.control import agents

router = APIRouter(prefix="/podyard/v1")

METRICS_PER_EVALUATION_MAX = 64  # a model is judged by a handful
REPORT_ITEMS_MAX = 5000  # of one kind in one report: ten thousand steps a second are beyond any replica


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
    live = deps.write(request, lambda uow: agents.sync(uow, caller, agent, message.fence, seen))
    return {
        "leaseSeconds": deps.platform(request).database.leases.agent_seconds,
        "replicas": [
            {"replica": r["replica_id"], "fence": r["fence"], "desired": r["desired"], "token": r["token"]}
            for r in live
        ],
    }


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
