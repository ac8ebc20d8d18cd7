"""The page that submits a user's own program: a file that is dropped, a gs:// object, or a
command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.control.jobs import jobs
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.job import Fallback, JobRequest
from podyard.domain.job_fields import NUM_NODES_MAX
from podyard.domain.node import NodeSpec
from podyard.domain.user_program import ProgramFile, UserProgram, check_user_program
from podyard.http import context, job_sources
from podyard.http.incoming import pieces_of
from podyard.web.jobs.place import JobPlace, node_of, place_of
from podyard.web.kit import commands, forms
from podyard.web.kit.render import ConsoleRoute, form_with_file, page, project_url, see_other

router = APIRouter(prefix="/console/{project}/jobs/program", route_class=ConsoleRoute)


@router.get("")
def program_form(request: Request, project: str) -> Response:
    return _form_page(request, project, dict(request.query_params), None)


@router.post("")
async def submit(request: Request, project: str) -> Response:
    fields, file = await form_with_file(request, "file")
    try:
        if file is not None:
            # What is refused later need not be sent again: the page names the object.
            uri = await job_sources.keep(request, project, file.filename or "", pieces_of(file))
            fields = {**fields, "source": uri}
    except PodyardError as error:
        refused = error
        return await context.in_thread(lambda: _form_page(request, project, fields, refused))
    return await context.in_thread(lambda: _submit(request, project, fields))


def _submit(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    try:
        zone, node = node_of(fields)
        asked = job_sources.look(request, _request(fleet, fields, zone, node))
        job_id = fields.get("job_id", "").strip() or None
        job = context.write(
            request, lambda uow: jobs.create(uow, fleet, caller, project, zone, job_id, asked, node)
        )
    except PodyardError as error:
        return _form_page(request, project, fields, error)
    return see_other(project_url(project, "jobs", job.zone, job.job_id))


def _request(
    fleet: Fleet, fields: Mapping[str, str], zone: str, node: str | NodeSpec
) -> JobRequest:
    return JobRequest(
        run=_run(fields),
        num_nodes=_num_nodes(fields, node),
        fallbacks=_fallbacks(fleet, fields, zone, node),
    )


def _num_nodes(fields: Mapping[str, str], node: str | NodeSpec) -> int:
    """Return how many slices are made; a node that exists is one."""
    count = (
        forms.whole_if_given(fields, "num_nodes", "Slices") if isinstance(node, NodeSpec) else None
    )
    if count is not None and not 1 <= count <= NUM_NODES_MAX:
        raise invalid(f"Slices is {count}: it must be from 1 to {NUM_NODES_MAX}", "num_nodes")
    return count or 1


def _run(fields: Mapping[str, str]) -> UserProgram:
    source = fields.get("source", "").strip()
    try:
        args = tuple(shlex.split(fields.get("args", "")))
    except ValueError as error:
        raise invalid(f"Arguments cannot be read: {error}", "run.args") from None
    env = {}
    for line in filter(None, map(str.strip, fields.get("env", "").splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise invalid(f"Environment: {line[:100]!r} must be NAME=VALUE", "run.env")
        env[name] = value
    return UserProgram(
        command=fields.get("command", "").strip(),
        entry=fields.get("entry", "").strip(),
        module=fields.get("module", "").strip(),
        setup=fields.get("setup", "").strip(),
        output=fields.get("output", "").strip(),
        source=ProgramFile(uri=source) if source else None,
        args=args,
        env=env,
    )


def _form_page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    caller.require("podyard.jobs.create", project, f"projects/{project}/locations/-/jobs")
    place = place_of(request, project, fields)
    lines: list[commands.Command] = []
    count = 1
    try:
        count = _num_nodes(fields, node_of({**place.fields, "node": place.place})[1])
    except PodyardError as wrong:
        error = error or wrong
    if error is None and any(fields.get(name) for name in ("command", "source", "file")):
        try:
            zone, node = node_of({**place.fields, "node": place.place})
            asked = _request(fleet, _with_file(fields, project), zone, node)
            assert asked.run is not None
            check_user_program(asked.run)
            lines = _commands(project, fields, asked.run, place, asked)
        except PodyardError as wrong:
            error = wrong
    return page(
        request,
        "job_program.html",
        status=error.code.http_status if error else 200,
        section="jobs",
        project=project,
        fields=fields,
        error=error.message if error else None,
        commands=lines,
        form_url=project_url(project, "jobs", "program"),
        places=place.places,
        creators=place.creators,
        more_places=place.more,
        place=place.place,
        node=place.node,
        choice=place.choice,
        price=place.price,
        num_nodes=count,
        region=region_of(place.choice.zone),
        no_price=place.no_price,
    )


def _commands(
    project: str, fields: Mapping[str, str], run: UserProgram, place: JobPlace, asked: JobRequest
) -> list[commands.Command]:
    zone, node = node_of({**place.fields, "node": place.place})
    job_id, file = fields.get("job_id", "").strip(), _file(fields)
    flags, switches, body = commands.job_target(node)
    if asked.fallbacks:
        flags += [("--fallback", f"@{other.zone}") for other in asked.fallbacks]
        body |= {"fallbacks": [{"location": other.zone} for other in asked.fallbacks]}
    if asked.num_nodes > 1:
        flags.append(("--num-nodes", str(asked.num_nodes)))
        body |= {"numNodes": asked.num_nodes}
    source = "" if file or run.source is None else run.source.uri
    told = {"entry": run.entry, "module": run.module, "command": run.command, "setup": run.setup}
    options = {"--run": file or source, **{f"--{name}": text for name, text in told.items()}}
    options |= {"--output-dir": run.output}
    flags += [(name, text) for name, text in options.items() if text]
    flags += [("--env", f"{name}={value}") for name, value in run.env.items()]
    parts: dict[str, object] = {**told, "output": run.output, "source": source}
    parts |= {"args": list(run.args), "env": dict(run.env)}
    program = {name: part for name, part in parts.items() if part}
    rest = [*switches, *([f"-- {shlex.join(run.args)}"] if run.args else [])]
    words = ["podyard", "job", "submit", *([job_id] if job_id else [])]
    target = [("--project", project), ("--zone", zone)]
    path = f"/podyard/v1/projects/{project}/locations/{zone}/jobs"
    return [
        commands.Command("podyard", commands.line(words, [*target, *flags], rest)),
        commands.Command("curl", commands.submit_program(path, job_id, file, program, body)),
    ]


def _with_file(fields: Mapping[str, str], project: str) -> Mapping[str, str]:
    """Return the fields as they are once the chosen file is uploaded."""
    file = _file(fields)
    return {**fields, "source": f"gs://{project}-podyard-jobs/{file}"} if file else fields


def _file(fields: Mapping[str, str]) -> str:
    """Return the name of the file that is chosen in the form and not uploaded yet."""
    return "" if fields.get("source") else fields.get("file", "").strip()


def _fallbacks(
    fleet: Fleet, fields: Mapping[str, str], zone: str, node: str | NodeSpec
) -> tuple[Fallback, ...]:
    """Return the other zones of the region that offer the node, where the form asks for them."""
    if isinstance(node, str) or not fields.get("anywhere"):
        return ()
    kind = fleet.type_named(zone, node.accelerator_type)
    return tuple(
        Fallback(other.name)
        for other in fleet.zones.values()
        if other.name != zone
        and region_of(other.name) == region_of(zone)
        and (offer := other.offers.get(kind.generation.name)) is not None
        and offer.fits(kind)
        and node.usage_class in offer.usage_classes
    )
