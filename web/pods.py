"""How full the pods are. Whose nodes hold the chips is not said: other projects share the fleet."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.control import access
from podyard.db import fleet as fleet_rows
from podyard.db.unit_of_work import UnitOfWork
from podyard.hardware.topology import shape_text
from podyard.http import context
from podyard.web import charts
from podyard.web.render import ConsoleRoute, page

router = APIRouter(prefix="/console/{project}/pods", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    """Every pod with its occupancy; a picture of those that hold something."""
    context.principal(request).require("podyard.pods.get", project, f"projects/{project}/pods")
    fleet = context.platform(request).fleet

    def body(uow: UnitOfWork) -> dict[str, int]:
        access.project_row(uow, project)
        held: dict[str, int] = {}
        for item in fleet_rows.load(uow, fleet).slices:
            held[item.pod_id] = held.get(item.pod_id, 0) | item.chips
        return held

    held = context.read(request, body)
    rows: list[dict[str, Any]] = []
    for pod in fleet.pods():
        chips = held.get(pod.pod_id, 0)
        picture = charts.pod_picture(pod.pod_id, pod.shape, chips, 0, None) if chips else None
        used = chips.bit_count()
        rows.append({"pod": pod, "shape": shape_text(pod.shape), "held": used, "picture": picture})
    rows.sort(key=lambda row: row["picture"] is None)
    return page(request, "pods.html", section="pods", project=project, rows=rows)
