"""Podyard's own REST for the platform: projects, preemption; health and metrics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field, StrictBool, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.api.tpu import convert
from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.control.compute import maintenance, nodes
from podyard.db import jobs, leases
from podyard.db import nodes as node_rows
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import node_name
from podyard.domain.project import Project
from podyard.http.texts import check_labels

router = APIRouter(route_class=deps.Route)
PROMETHEUS = "text/plain; version=0.0.4"
_NODE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/v2.Node"}}}}
}


class ProjectMessage(deps.Asked):
    project_id: StrictStr
    labels: dict[str, StrictStr] = Field(default_factory=dict)


class MaintenanceMessage(deps.Asked):
    window_start_time: StrictStr
    window_end_time: StrictStr
    latest_window_start_time: StrictStr | None = None
    can_reschedule: StrictBool = True
    type: StrictStr = "SCHEDULED"


class Health(TypedDict):
    status: str


class Checks(TypedDict):
    database: str
    loop: str
    grpc: str


class Readiness(Health):
    checks: Checks


class ProjectAnswer(TypedDict):
    projectId: str
    projectNumber: str
    labels: dict[str, str]
    createTime: Timestamp


class Projects(TypedDict):
    projects: list[ProjectAnswer]


@router.get("/healthz")
def healthz() -> Health:
    """This process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(request: Request) -> Readiness:
    """The database answers, a control loop leads (nodes get placed and time runs), gRPC is served if it is enabled."""
    database = deps.platform(request).database

    if not database.read(lambda uow: leases.is_held(uow, leases.LOOP_LEADER)):
        raise PodyardError(
            Code.UNAVAILABLE, "the control loop is not running: nodes are not placed and platform time stands still"
        )
    grpc: str = request.app.state.front
    if grpc not in ("ok", "off"):
        raise PodyardError(Code.UNAVAILABLE, f"gRPC: {grpc}")
    return {"status": "ok", "checks": {"database": "ok", "loop": "ok", "grpc": grpc}}


@router.get("/metrics", responses={200: {"content": {PROMETHEUS: {"schema": {"type": "string"}}}}})
def metrics(request: Request) -> Response:
    """Prometheus text, of the projects that the caller may see."""
    caller = deps.principal(request)

    def body(uow: UnitOfWork) -> list[str]:
        lines = ["# TYPE podyard_nodes gauge"]
        projects = [found.project for found in identity.list_projects(uow, caller)]
        for project in projects:
            for state, count in node_rows.state_counts(uow, project).items():
                lines.append(f'podyard_nodes{{project="{project}",state="{state}"}} {count}')
        lines.append("# TYPE podyard_jobs gauge")
        for project in projects:
            for state, count in sorted(jobs.state_counts(uow, project).items()):
                lines.append(f'podyard_jobs{{project="{project}",state="{state}"}} {count}')
        lines += ["# TYPE podyard_platform_time_seconds gauge", f"podyard_platform_time_seconds {uow.now.nanos / 1e9}"]
        return lines

    return Response("\n".join(deps.read(request, body)) + "\n", media_type=PROMETHEUS)


@router.get("/podyard/v1/projects")
def list_projects(request: Request) -> Projects:
    caller = deps.principal(request)
    return {
        "projects": [_project(found) for found in deps.read(request, lambda uow: identity.list_projects(uow, caller))]
    }


@router.post("/podyard/v1/projects")
def create_project(request: Request, body: Annotated[deps.Body, ProjectMessage]) -> ProjectAnswer:
    caller = deps.principal(request)
    caller.require("podyard.projects.create", "*", "projects")
    message = deps.parse(ProjectMessage, body)
    check_labels(message.labels)
    return _project(
        deps.write(request, lambda uow: identity.create_project(uow, caller, message.project_id, message.labels))
    )


@router.post(
    "/podyard/v1/projects/{project}/locations/{zone}/nodes/{node}:preempt",
    responses=_NODE,
)
def preempt(request: Request, project: str, zone: str, node: str) -> dict[str, Any]:
    caller = deps.principal(request)

    def body(uow: UnitOfWork) -> dict[str, Any]:
        moved = nodes.preempt(uow, caller, project, zone, node)
        return convert.to_api_node("v2", moved, identity.project_row(uow, project).number)

    return deps.write(request, body)


@router.post("/podyard/v1/projects/{project}/locations/{zone}/nodes/{node}:scheduleMaintenance", responses=_NODE)
def schedule_maintenance(
    request: Request, project: str, zone: str, node: str, body: Annotated[deps.Body, MaintenanceMessage]
) -> dict[str, Any]:
    """Plans a maintenance, as Google does on its own: it begins with its window, or when the user performs it."""
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.nodes.scheduleMaintenance", project, node_name(project, zone, node))
    message = deps.parse(MaintenanceMessage, body)
    starts = deps.moment(message.window_start_time, "windowStartTime")
    ends = deps.moment(message.window_end_time, "windowEndTime")
    latest = deps.moment(message.latest_window_start_time, "latestWindowStartTime")
    assert starts is not None and ends is not None, "both are required"
    what = (starts, ends, latest, message.can_reschedule, message.type)

    def unit(uow: UnitOfWork) -> dict[str, Any]:
        planned = maintenance.schedule(uow, fleet, caller, project, zone, node, *what)
        return convert.to_api_node("v2", planned, identity.project_row(uow, project).number)

    return deps.write(request, unit)


def _project(found: Project) -> ProjectAnswer:
    return {
        "projectId": found.project,
        "projectNumber": str(found.number),
        "labels": dict(found.labels),
        "createTime": found.created.rfc3339(),
    }
