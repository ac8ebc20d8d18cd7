"""The types that a job can be resized to: price, quota and room of each before the click."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.control.jobs import jobs, type_change
from podyard.control.jobs.type_change import TypeOption
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.http import context
from podyard.pricing.sku import Price
from podyard.web.kit import commands, forms
from podyard.web.kit.render import ConsoleRoute, form_of, page, project_url, see_other

router = APIRouter(prefix="/console/{project}/jobs", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class TypeRow:
    """A type with the price of all of the job's nodes; None: `no_price` says why."""

    option: TypeOption
    price: Price | None
    no_price: str
    count: int
    is_present: bool

    @property
    def nanos(self) -> int | None:
        return None if self.price is None else self.price.total_nanos_per_hour * self.count

    @property
    def is_choice(self) -> bool:
        return not self.is_present and not self.option.refusal

    @property
    def has_room(self) -> bool:
        return self.option.room.nodes >= self.count


@router.get("/{zone}/{job_id}/type")
def show(request: Request, project: str, zone: str, job_id: str) -> Response:
    return _page(request, project, zone, job_id, request.query_params.get("type", ""), None)


@router.post("/{zone}/{job_id}/type")
async def resize(request: Request, project: str, zone: str, job_id: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(
        lambda: _resize(request, project, zone, job_id, fields.get("type", ""))
    )


def _resize(request: Request, project: str, zone: str, job_id: str, type_name: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    place = (caller, project, zone, job_id)
    try:
        context.write(request, lambda uow: type_change.resize(uow, fleet, *place, type_name))
    except PodyardError as error:
        return _page(request, project, zone, job_id, type_name, error)
    return see_other(project_url(project, "jobs", zone, job_id))


def _page(
    request: Request,
    project: str,
    zone: str,
    job_id: str,
    type_name: str,
    error: PodyardError | None,
) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    caller.require("podyard.jobs.resize", project, f"projects/{project}/locations/{zone}/jobs")

    def body(uow: UnitOfWork) -> tuple[Job, list[TypeRow]]:
        job = jobs.get(uow, caller, project, zone, job_id)
        options = type_change.options(uow, fleet, caller, job)
        return job, [_row(job, option, uow) for option in options]

    job, rows = context.read(request, body)
    chosen = next((row for row in rows if row.option.kind.name == type_name), None)
    name = "TYPE" if chosen is None else type_name
    return page(
        request,
        "resize/page.html",
        status=error.code.http_status if error else 200,
        section="jobs",
        project=project,
        chosen=chosen,
        error=error.message if error else None,
        job_url=project_url(project, "jobs", zone, job_id),
        commands=commands.resize_job(project, zone, job_id, name),
        job=job,
        rows=rows,
        why_not=type_change.keeps_type(job),
    )


def _row(job: Job, option: TypeOption, uow: UnitOfWork) -> TypeRow:
    usage = str(option.spec.usage_class)
    price, why = forms.price_of(option.kind.name, job.zone_of_node, usage, uow.now)
    is_present = option.kind.name == job.accelerator_type
    return TypeRow(option, price, why, job.spec.num_nodes, is_present)
