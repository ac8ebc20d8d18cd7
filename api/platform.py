"""Podyard's own REST for the platform: projects, preemption; health and metrics."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Request
from pydantic import Field, StrictBool, StrictInt, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.api.tpu import convert
from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.control.compute import maintenance, nodes
from podyard.db.store import leases
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import node_name
from podyard.domain.project import Project
from podyard.http.texts import check_labels

router = APIRouter(route_class=deps.Route)
_NODE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/v2.Node"}}}}
}


class ProjectQuotaMessage(deps.Asked):
    """`chips`: how many the project may hold at once, in all zones; none: only the fleet's
    quotas."""

    chips: Annotated[StrictInt, Field(ge=0, le=deps.NUMBER_MAX)] | None = None


class ProjectMessage(deps.Asked):
    project_id: StrictStr
    labels: dict[str, StrictStr] = Field(default_factory=dict)
    quota: ProjectQuotaMessage = Field(default_factory=ProjectQuotaMessage)


class ProjectUpdateMessage(deps.Asked):
    quota: ProjectQuotaMessage


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


class ProjectQuota(TypedDict):
    chips: int


class ProjectAnswer(TypedDict):
    """`quota` is left out where only the fleet's quotas count."""

    projectId: str
    projectNumber: str
    labels: dict[str, str]
    createTime: Timestamp
    quota: NotRequired[ProjectQuota]


class Projects(TypedDict):
    projects: list[ProjectAnswer]


@router.get("/healthz")
def healthz() -> Health:
    """This process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(request: Request) -> Readiness:
    """The database answers, a control loop leads (nodes get placed and time runs), gRPC is served
    if it is enabled."""
    database = deps.platform(request).database

    if not database.read(lambda uow: leases.is_held(uow, leases.LOOP_LEADER)):
        raise PodyardError(
            Code.UNAVAILABLE,
            "the control loop is not running: nodes are not placed and platform time stands still",
        )
    grpc: str = request.app.state.front
    if grpc not in ("ok", "off"):
        raise PodyardError(Code.UNAVAILABLE, f"gRPC: {grpc}")
    return {"status": "ok", "checks": {"database": "ok", "loop": "ok", "grpc": grpc}}


@router.get("/podyard/v1/projects")
def list_projects(request: Request) -> Projects:
    caller = deps.principal(request)
    return {
        "projects": [
            _project(found)
            for found in deps.read(request, lambda uow: identity.list_projects(uow, caller))
        ]
    }


@router.post("/podyard/v1/projects")
def create_project(request: Request, body: Annotated[deps.Body, ProjectMessage]) -> ProjectAnswer:
    caller = deps.principal(request)
    caller.require("podyard.projects.create", "*", "projects")
    message = deps.parse(ProjectMessage, body)
    check_labels(message.labels)
    what = (message.project_id, message.labels, message.quota.chips)
    return _project(deps.write(request, lambda uow: identity.create_project(uow, caller, *what)))


@router.patch("/podyard/v1/projects/{project}", responses=deps.errors(404))
def update_project(
    request: Request, project: str, body: Annotated[deps.Body, ProjectUpdateMessage]
) -> ProjectAnswer:
    """Sets the project's quota. What it holds beyond it stays."""
    caller = deps.principal(request)
    caller.require("podyard.projects.create", "*", f"projects/{project}")
    chips = deps.parse(ProjectUpdateMessage, body).quota.chips
    return _project(
        deps.write(request, lambda uow: identity.update_project(uow, caller, project, chips))
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


@router.post(
    "/podyard/v1/projects/{project}/locations/{zone}/nodes/{node}:scheduleMaintenance",
    responses=_NODE,
)
def schedule_maintenance(
    request: Request,
    project: str,
    zone: str,
    node: str,
    body: Annotated[deps.Body, MaintenanceMessage],
) -> dict[str, Any]:
    """Plans a maintenance, as Google does on its own: it begins with its window, or when the user
    performs it."""
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
    answer: ProjectAnswer = {
        "projectId": found.project,
        "projectNumber": str(found.number),
        "labels": dict(found.labels),
        "createTime": found.created.rfc3339(),
    }
    if found.chips_max is not None:
        answer["quota"] = {"chips": found.chips_max}
    return answer
