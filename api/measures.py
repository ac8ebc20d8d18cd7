"""`GET /metrics`: Prometheus' text format, for a caller's projects, and for those who watch the
platform all of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from podyard import __version__
from podyard.api import deps
from podyard.control.access import identity
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import jobs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import measures
from podyard.db.views.measures import Measures
from podyard.http.requests import Counts

router = APIRouter(route_class=deps.Route)
PROMETHEUS = "text/plain; version=0.0.4"
PERMISSION = "podyard.metrics.get"


@router.get("/metrics", responses={200: {"content": {PROMETHEUS: {"schema": {"type": "string"}}}}})
def metrics(request: Request) -> Response:
    """Prometheus text: nodes and jobs of the projects that the caller may see; for viewers and
    monitors the state of
    the platform, too."""
    caller, platform = deps.principal(request), deps.platform(request)
    sees_platform = any(caller.may(PERMISSION, project) for project in caller.roles)

    def body(uow: UnitOfWork) -> tuple[list[str], Measures | None]:
        lines = ["# TYPE podyard_nodes gauge"]
        projects = [found.project for found in identity.list_projects(uow, caller)]
        for project in projects:
            for state, count in node_rows.state_counts(uow, project).items():
                lines.append(f'podyard_nodes{{project="{project}",state="{state}"}} {count}')
        lines.append("# TYPE podyard_jobs gauge")
        for project in projects:
            for state, count in sorted(jobs.state_counts(uow, project).items()):
                lines.append(f'podyard_jobs{{project="{project}",state="{state}"}} {count}')
        lines += [
            "# TYPE podyard_platform_time_seconds gauge",
            f"podyard_platform_time_seconds {uow.now.nanos / 1e9}",
        ]
        return lines, measures.read(uow) if sees_platform else None

    lines, found = deps.read(request, body)
    if found is not None:
        counts: Counts = request.app.state.requests
        lines += _of_platform(found) + counts.lines()
        data = platform.settings.data
        lines += _gauge("disk_free_bytes", shutil.disk_usage(data).free if data.exists() else 0)
        lines += [
            "# TYPE podyard_build_info gauge",
            f'podyard_build_info{{version="{__version__}"}} 1',
        ]
    return Response("\n".join(lines) + "\n", media_type=PROMETHEUS)


def _of_platform(found: Measures) -> list[str]:
    lines = [
        *_by_state("agents", found.agents),
        *_by_state("replicas", found.replicas),
        *_by_state("hosts", found.hosts),
        *_by_state("queued_resources", found.queued_resources),
        *_gauge("operations_running", found.operations_running),
        *_gauge("operation_oldest_seconds", found.operation_oldest_seconds),
        *_gauge("messages_unsent", found.outbox_unsent),
        *_gauge("message_oldest_seconds", found.outbox_oldest_seconds),
        *_gauge("timer_overdue_seconds", found.timer_overdue_seconds),
        *_gauge("loop_leads", int(bool(found.leader))),
        "# TYPE podyard_loop_leaders_total counter",
        f"podyard_loop_leaders_total {found.leader_fence}",
        *_gauge("invoices_held", found.accounts_held),
    ]
    lag = found.clock_lag_seconds
    return lines if lag is None else [*lines, *_gauge("clock_lag_seconds", lag)]


def _gauge(name: str, value: float) -> list[str]:
    return [f"# TYPE podyard_{name} gauge", f"podyard_{name} {value}"]


def _by_state(name: str, counts: Mapping[str, int]) -> list[str]:
    lines = [
        f'podyard_{name}{{state="{state}"}} {count}' for state, count in sorted(counts.items())
    ]
    return [f"# TYPE podyard_{name} gauge", *lines]
