"""A project at a glance: what needs attention, what runs, what waits, what it costs, and what has
just happened."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from podyard.base.clock import PlatformTime
from podyard.base.durations import duration_for_people
from podyard.control.access import identity
from podyard.control.billing import dashboard, job_progress
from podyard.control.billing.kept_bills import Behind
from podyard.control.billing.snapshots import is_first_made, snapshot
from podyard.control.compute import hosts, pods, queue_view
from podyard.control.compute.pods import PodUse
from podyard.control.compute.queue_view import Waiting
from podyard.control.jobs import views
from podyard.db.billing import cost_dimensions
from podyard.db.compute.hosts import NodeModule
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import WAITING_JOB_STATES, Job
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.web.billing.common import budget_bar, cents, hourly
from podyard.web.jobs import curves as job_curves
from podyard.web.kit import charts, live
from podyard.web.kit.places import resource_url
from podyard.web.kit.render import ConsoleRoute, fragment, page, project_url
from podyard.web.nodes.capacity_alerts import misfits, stockouts

JOBS_SHOWN_MAX = 10  # of those that run, and of those that wait
WAITING_SHOWN_MAX = 10
EVENTS_SHOWN_MAX = 12
JOBS_READ_MAX = 200  # of those that have not ended
SPARK_POINTS = 40
POLL_SECONDS = 3.0  # an overview changes slowly, and reads more than other pages
# of a larger project the bill may take seconds when it is first read: the stream brings it
SPEND_NODES_MAX = 2_000
OVERVIEW_PARTS = (
    "overview_alerts", "overview_figures", "overview_jobs", "overview_waiting", "overview_chips",
    "overview_events",
)  # fmt: skip

router = APIRouter(prefix="/console/{project}/overview", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    def body(uow: UnitOfWork) -> dict[str, Any]:
        return _values(
            uow, request, project, not cost_dimensions.has_more_nodes(uow, project, SPEND_NODES_MAX)
        )

    url = project_url(project, "overview", "live")
    return page(
        request,
        "overview.html",
        section="overview",
        wide=True,
        live=url,
        **context.read(request, body),
    )


@router.get("/live")
async def show_live(request: Request, project: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        values = _values(uow, request, project, True)
        return live.Parts({part: fragment(f"{part}.html", **values) for part in OVERVIEW_PARTS})

    return await live.stream(request, project, parts, every=POLL_SECONDS)


def _values(uow: UnitOfWork, request: Request, project: str, with_spend: bool) -> dict[str, Any]:
    caller, fleet = context.principal(request), context.platform(request).fleet
    identity.project_row(uow, project)
    jobs = views.active_jobs(uow, caller, project, JOBS_READ_MAX)
    running = [job for job in jobs if job.state not in WAITING_JOB_STATES]
    waiting = queue_view.rows(uow, fleet, caller, project, None)
    use = pods.chips_in_use(uow, fleet, caller, project)
    spend = _spend(uow, request, project) if with_spend else None
    modules = hosts.modules_that_do_not_fit(uow, caller, project)
    changes = views.newest_changes(uow, caller, project, EVENTS_SHOWN_MAX)
    return {
        "project": project,
        "now": uow.now,
        "running": [(job, _sparkline(uow, request, job)) for job in running[:JOBS_SHOWN_MAX]],
        "running_count": len(running),
        "progress": job_progress.of_all(
            uow, default_rate_card(), caller, project, running[:JOBS_SHOWN_MAX]
        ),
        "waiting": [(item, _waiting_url(item, project)) for item in waiting[:WAITING_SHOWN_MAX]],
        "waiting_count": len(waiting),
        "pods": [one for one in use if one.held],
        "generations": _generations(use),
        "is_new": not changes,
        "own_chips": sum(one.own for one in use),
        "spend": spend,
        "sees_bill": caller.may("podyard.billing.view", project),
        "alerts": _alerts(use, waiting, modules, spend, uow.now, project),
        "events": [(change, resource_url(change.resource_name)) for change in changes],
    }


def _generations(use: Sequence[PodUse]) -> list[PodUse]:
    """Chips of each generation of which something is in use, in the order of names."""
    found: dict[str, PodUse] = {}
    for one in use:
        sums = found.get(one.generation, PodUse("", one.generation, 0, 0, 0, 0))
        found[one.generation] = PodUse(
            "",
            one.generation,
            sums.own + one.own,
            sums.held + one.held,
            sums.chips + one.chips,
            sums.broken + one.broken,
        )
    return sorted((one for one in found.values() if one.held), key=lambda one: one.generation)


def _sparkline(uow: UnitOfWork, request: Request, job: Job) -> Markup | None:
    """Of the first thing that the job measures."""
    place = (job.project, job.zone, job.job_id)
    points = views.curve_of_job(uow, context.principal(request), *place, SPARK_POINTS).points
    names = job_curves.names_of(job, points)
    if not names or not points:
        return None
    return charts.sparkline(
        f"{names[0]} of {job.job_id}", job_curves.line_of(names[0], points).points
    )


def _spend(uow: UnitOfWork, request: Request, project: str) -> dict[str, Any] | None:
    """None for who may not see the bill, while it is made for the first time (a later message
    brings it), and while another reader is ahead of this one."""
    caller = context.principal(request)
    if not caller.may("podyard.billing.view", project) or is_first_made(uow, project):
        return None
    with contextlib.suppress(Behind):
        found = snapshot(uow, default_rate_card(), caller, project)
        month = dashboard.month_to_date(uow, found)
        costs = [float(day.parts) for _, day in month.days]
        return {
            "month": month.month,
            "today": cents(month.days[-1][1].parts),
            "spent": cents(month.spent.parts),
            "by_day": charts.small_bars(f"Cost of each day of {month.month}", costs),
            "expected": cents(month.forecast.expected.parts),
            "based_on": duration_for_people(month.forecast.based_on)
            if month.forecast.based_on
            else "",
            "rate": hourly(month.rate),
            "budgets": [budget_bar(one) for one in month.budgets],
            "held": len({one.resource_id for one in found.suspense}),
        }
    return None


def _alerts(
    use: Sequence[PodUse],
    waiting: Sequence[Waiting],
    modules: Sequence[NodeModule],
    spend: dict[str, Any] | None,
    now: PlatformTime,
    project: str,
) -> list[tuple[str, str, str]]:
    """(what, more about it, where to look)."""
    found = []
    for budget in spend["budgets"] if spend else ():
        if budget["is_used_up"]:
            text = f"{budget['spent']} of {budget['amount']} spent"
            found.append(
                (
                    f"Budget {budget['name']} is used up",
                    text,
                    project_url(project, "billing", "budgets"),
                )
            )
    if spend and spend["held"]:
        found.append(
            (
                "Usage without a price is held",
                f"nodes: {spend['held']}",
                project_url(project, "billing"),
            )
        )
    found += stockouts(waiting, now, project) + misfits(waiting, modules, project)
    found += [
        (
            f"Broken chips in {one.pod_id}",
            f"{one.broken:,} of {one.chips:,}",
            project_url(project, "pods", one.pod_id),
        )
        for one in use
        if one.broken
    ]
    return found


def _waiting_url(item: Waiting, project: str) -> str:
    return resource_url(item.name) or project_url(project, "queue")
