"""The routes of agents and replicas, whose tokens carry no role, so that they may call nothing
else."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.responses import FileResponse, Response
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.hosts import HostWantedAnswer, RanModuleSeen, listens, to_api_wanted
from podyard.api.job_answers import JobTask, to_api_task
from podyard.base.clock import PlatformTime, RealTime
from podyard.base.contents import Contents
from podyard.base.errors import invalid
from podyard.base.log_files import LogFiles
from podyard.base.sealing import unseal
from podyard.control.compute import host_connections, host_disks, hosts
from podyard.control.jobs import reports
from podyard.control.platform import agents
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.gang import core_count, learning_rate_scale
from podyard.domain.host import addresses_of
from podyard.domain.job import objects_prefix
from podyard.domain.job_history import CheckpointRecord, EvaluationRecord, MetricPoint
from podyard.domain.log import CHUNK_LINES_MAX, WrittenLines
from podyard.domain.ran_module import MODULES_KEPT_MAX, ProgramRun
from podyard.domain.user_program import UserProgram, command_text, program_environment

router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)

METRICS_PER_EVALUATION_MAX = 64  # a model is judged by a handful
# of one kind in one report: ten thousand steps a second are beyond any replica
REPORT_ITEMS_MAX = 5000
FOLDERS_PER_SYNC_MAX = 256  # of hosts that are not running: removing them is not urgent


# What a column for them holds, on PostgreSQL as well.
Count = Annotated[int, Field(ge=0, lt=2**31)]
Total = Annotated[int, Field(ge=0, lt=2**63)]
Fence = Annotated[int, Field(ge=0, lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


DIGEST: deps.Query = {
    "name": "digest",
    "description": "SHA-256 of the file.",
    "schema": {"type": "string"},
    "required": True,
}


class _AgentMessage(deps.Asked):
    model_config = ConfigDict(strict=True)


class ReplicaSeen(_AgentMessage):
    replica: str
    fence: Fence
    state: str
    pid: int | None = None
    exit_code: int | None = None
    reason: str = ""
    released: bool = False


class SyncMessage(_AgentMessage):
    fence: Fence
    replicas: list[ReplicaSeen] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    host_folders: list[str] = Field(default_factory=list, max_length=FOLDERS_PER_SYNC_MAX)
    disk_folders: list[str] = Field(default_factory=list, max_length=FOLDERS_PER_SYNC_MAX)


class JoinMessage(_AgentMessage):
    fence: Fence
    address: str = Field(max_length=128)


class PointMessage(_AgentMessage):
    step: Count
    metrics: dict[Annotated[str, Field(max_length=64)], Finite] = Field(
        max_length=METRICS_PER_EVALUATION_MAX
    )
    wall_seconds: Finite = Field(ge=0)
    modelled_seconds: Finite = Field(ge=0)


class CheckpointMessage(_AgentMessage):
    step: Count
    name: str = Field(max_length=512)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    best: bool = False


class EvaluationMessage(_AgentMessage):
    step: Count
    metrics: dict[Annotated[str, Field(max_length=64)], Finite] = Field(
        max_length=METRICS_PER_EVALUATION_MAX
    )


class LinesMessage(_AgentMessage):
    """Lines as one text (`podyard/domain/log.py`). `seq`, `at`: of the first one; `millis`: until
    the last one."""

    seq: Count
    lines: int = Field(ge=1, le=CHUNK_LINES_MAX)
    at: str
    millis: Count
    text: str


class MachineUseMessage(_AgentMessage):
    """The time and memory that the replica's process has taken of its machine so far."""

    cpu_microseconds: Total
    memory_kib_seconds: Total


class ProgramRunMessage(_AgentMessage):
    """The modules of a user's program (`podyard/domain/ran_module.py`)."""

    modules: list[RanModuleSeen] = Field(max_length=MODULES_KEPT_MAX)
    modules_left_out: Count = 0
    step: str = Field(default="", max_length=512)
    step_reason: str = Field(default="", max_length=512)
    steps: Total | None = None
    step_seconds: Finite | None = Field(default=None, ge=0)
    seconds: Finite | None = Field(default=None, ge=0)
    error: str = Field(default="", max_length=512)


class ReportMessage(_AgentMessage):
    fence: Fence
    state: str = Field(pattern="^(RUNNING|SUCCEEDED|FAILED|YIELDED)$")
    error: str | None = None
    permanent: bool = False
    metrics: list[PointMessage] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    evaluations: list[EvaluationMessage] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    checkpoints: list[CheckpointMessage] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    pruned: list[Count] = Field(default_factory=list, max_length=REPORT_ITEMS_MAX)
    log: LinesMessage | None = None
    summary: dict[str, Any] = Field(default_factory=dict)
    used: MachineUseMessage | None = None
    run: ProgramRunMessage | None = None


class ReplicaWanted(TypedDict):
    replica: str
    fence: int
    desired: str
    token: str


class Synced(TypedDict):
    leaseSeconds: float
    replicas: list[ReplicaWanted]
    hosts: list[HostWantedAnswer]
    goneHosts: list[str]
    goneDisks: list[str]
    listeners: bool


class PeerAnswer(TypedDict):
    processIndex: int
    hostIndices: list[int]
    address: str
    agent: str


class Joined(TypedDict):
    ready: bool
    peers: list[PeerAnswer]


class Reported(TypedDict):
    """`checkpointsFail`: a fault keeps checkpoints from being written. `pinnedStep`: from it on,
    checkpoints stay. `nextLine`: the number of the line of the log that is expected next.
    `stacksAsked`: when its stacks were last asked for, in nanoseconds; 0: never."""

    desired: str
    checkpointsFail: bool
    pinnedStep: int | None
    nextLine: int
    stacksAsked: int
    leaseSeconds: float


class HostOfReplica(TypedDict):
    """`generation`: the life of the host that the program is to run in, or a later one."""

    host: str
    generation: int
    state: str
    software: str
    problem: str


class FileOfReplica(TypedDict):
    """`target`: "" for the source. `folder`: at the top of the archive, left out of the paths."""

    digest: str
    bytes: int
    name: str
    target: str
    folder: str


class RunOfReplica(TypedDict):
    """A user's program: what the shell runs, and with what. `environment`: in addition to the
    host's. `workers`: of a program on several slices, where it reaches the hosts of all of them, by
    rank: [from boxes, from the machine]."""

    command: str
    setup: str
    environment: dict[str, str]
    files: list[FileOfReplica]
    packages: str
    packagesKey: str
    host: HostOfReplica
    workers: list[tuple[str, str]]


class Specification(JobTask):
    """Everything that a replica needs to run."""

    job: str
    attempt: int
    epoch: int
    fence: int
    learningRateScale: float
    acceleratorType: str
    coreCount: int
    hostCount: int
    hostIndices: list[int]
    rank: int
    processCount: int
    ringKey: str
    resumeStep: int
    objectsPrefix: str
    bindAddress: str
    leaseSeconds: float
    run: RunOfReplica | None


@router.post("/agents/{agent}:sync")
def sync(request: Request, agent: str, body: Annotated[deps.MendedBody, SyncMessage]) -> Synced:
    caller = deps.principal(request)
    agents.require_agent(caller, agent)
    message = deps.parse(SyncMessage, body)
    seen = [
        reports.ReplicaReport(r.replica, r.fence, r.state, r.reason, r.released)
        for r in message.replicas
    ]

    def body_of_unit(uow: UnitOfWork) -> tuple[Any, Any, Any, Any, bool]:
        live = reports.sync(uow, caller, agent, message.fence, seen)
        listening = listens(request, agent) and host_connections.has_listeners(uow)
        return (
            live,
            hosts.list_wanted(uow, agent),
            hosts.list_removed(uow, message.host_folders),
            host_disks.list_removed(uow, message.disk_folders),
            listening,
        )

    live, wanted, gone, gone_disks, listening = deps.write(request, body_of_unit)
    return {
        "leaseSeconds": deps.platform(request).database.leases.agent_seconds,
        "replicas": [
            {"replica": r.replica_id, "fence": r.fence, "desired": r.desired, "token": r.token}
            for r in live
        ],
        "hosts": [to_api_wanted(host) for host in wanted],
        "goneHosts": gone,
        "goneDisks": gone_disks,
        "listeners": listening,
    }


@router.post("/replicas/{replica}:join")
def join(request: Request, replica: str, body: Annotated[deps.Body, JoinMessage]) -> Joined:
    caller = deps.principal(request)
    reports.require_replica(caller, replica)
    message = deps.parse(JoinMessage, body)
    peers = deps.write(
        request, lambda uow: reports.join(uow, caller, replica, message.fence, message.address)
    )
    if peers is None:
        return {"ready": False, "peers": []}
    return {
        "ready": True,
        "peers": [
            {
                "processIndex": p.rank,
                "hostIndices": list(p.host_indices),
                "address": p.address or "",
                "agent": p.agent_id,
            }
            for p in peers
        ],
    }


@router.post("/replicas/{replica}:report")
def report(
    request: Request, replica: str, body: Annotated[deps.MendedBody, ReportMessage]
) -> Reported:
    caller = deps.principal(request)
    reports.require_replica(caller, replica)
    message = deps.parse(ReportMessage, body)
    written, files = _written_lines(message), LogFiles(deps.platform(request).settings.logs_path)

    def unit(uow: UnitOfWork) -> tuple[reports.ReplicaInstruction, bool, int | None]:
        told = reports.report(uow, caller, replica, _progress(message, written, uow.now), files)
        return told, reports.checkpoints_fail(uow, replica), reports.pinned_step(uow, replica)

    told, fail, pinned = deps.write(request, unit)
    if told.use is not None:
        deps.platform(request).host_use.take(told.use, deps.platform(request).clock.now())
    return {
        "desired": told.desired,
        "checkpointsFail": fail,
        "pinnedStep": pinned,
        "nextLine": told.next_line,
        "stacksAsked": told.stacks_real.nanos if told.stacks_real else 0,
        "leaseSeconds": deps.platform(request).database.leases.replica_seconds,
    }


@router.get(
    "/replicas/{replica}:file",
    openapi_extra=deps.asks(DIGEST),
    responses={200: {"content": {"application/octet-stream": {"schema": {}}}}},
)
def file(request: Request, replica: str) -> Response:
    """One of the files that the replica's job has brought."""
    caller, digest = deps.principal(request), request.query_params.get("digest") or ""
    deps.read(request, lambda uow: reports.check_file(uow, caller, replica, digest))
    contents = Contents(deps.platform(request).settings.contents_path)
    return FileResponse(contents.path(digest), media_type="application/octet-stream")


@router.get("/replicas/{replica}")
def specification(request: Request, replica: str) -> Specification:
    caller = deps.principal(request)
    assigned = deps.read(request, lambda uow: reports.specification(uow, caller, replica))
    return to_api_specification(assigned, deps.platform(request).database.leases.replica_seconds)


def to_api_specification(assigned: reports.Assignment, lease_seconds: float) -> Specification:
    job, attempt, mine = assigned.job, assigned.attempt, assigned.replica
    hosts, batch = job.size_of(attempt)
    return {
        **to_api_task(job.spec, batch),
        "job": job.name,
        "attempt": attempt.attempt,
        "epoch": attempt.attempt,
        "fence": mine.fence,
        "learningRateScale": learning_rate_scale(job.spec, job.kind, hosts),
        "acceleratorType": job.accelerator_type,
        "coreCount": core_count(job.kind, hosts),
        "hostCount": hosts,
        "hostIndices": list(mine.host_indices),
        "rank": mine.rank,
        "processCount": assigned.process_count,
        "ringKey": attempt.ring_key,
        "resumeStep": attempt.resume_step,
        "objectsPrefix": objects_prefix(job.job_key),
        "bindAddress": assigned.bind_address,
        "leaseSeconds": lease_seconds,
        "run": None if job.spec.run is None else _run(assigned, job.spec.run),
    }


def _unseal_secrets(run: UserProgram) -> UserProgram:
    return dataclasses.replace(
        run, secrets={name: unseal(value) for name, value in run.secrets.items()}
    )


def _run(assigned: reports.Assignment, run: UserProgram) -> RunOfReplica:
    host = assigned.host
    assert host is not None
    return {
        "command": command_text(run),
        "setup": run.setup,
        "environment": program_environment(
            _unseal_secrets(run), assigned.job.job_id, assigned.attempt.attempt
        ),
        "files": [
            {
                "digest": f.digest,
                "bytes": f.bytes,
                "name": f.name,
                "target": f.target,
                "folder": f.folder,
            }
            for f in run.files
        ],
        "packages": run.packages,
        "packagesKey": run.packages_key,
        "host": {
            "host": host.host_id,
            "generation": host.generation,
            "state": host.state,
            "software": host.software,
            "problem": host.problem,
        },
        "workers": [
            pair
            for one in assigned.slices
            for pair in zip(one.internal_ips, addresses_of(one), strict=True)
        ],
    }


def _written_lines(message: ReportMessage) -> WrittenLines | None:
    log = message.log
    if log is None:
        return None
    if log.text.count("\n") != log.lines or not log.text.endswith("\n"):
        raise invalid(f"log.text does not consist of {log.lines} lines", "log.text")
    try:
        return WrittenLines(log.seq, log.lines, RealTime.from_rfc3339(log.at), log.millis, log.text)
    except ValueError as error:
        raise invalid(str(error), "log.at") from None


def _progress(
    message: ReportMessage, written: WrittenLines | None, now: PlatformTime
) -> reports.Progress:
    number = message.fence  # of the attempt
    resumed = message.summary.get("resumedStep")
    return reports.Progress(
        fence=number,
        state=message.state,
        error=message.error,
        is_permanent=message.permanent,
        points=[MetricPoint(attempt=number, **point.model_dump()) for point in message.metrics],
        evaluations=[
            EvaluationRecord(one.step, number, one.metrics) for one in message.evaluations
        ],
        checkpoints=[
            CheckpointRecord(attempt=number, at=now, **saved.model_dump())
            for saved in message.checkpoints
        ],
        pruned=message.pruned,
        written=written,
        summary=message.summary,
        resumed_step=resumed if isinstance(resumed, int) else None,
        used=None
        if message.used is None
        else (message.used.cpu_microseconds, message.used.memory_kib_seconds),
        run=None if message.run is None else ProgramRun.of_stored(message.run.model_dump()),
    )
