"""The page that submits a user's own program: a file that is dropped, a gs:// object, or a
command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.control.jobs import jobs
from podyard.domain.job import JobRequest
from podyard.domain.job_fields import NUM_NODES_MAX
from podyard.domain.node import NodeSpec
from podyard.domain.user_program import ProgramFile, UserProgram, check_user_program
from podyard.http import context, job_sources
from podyard.http.incoming import pieces_of
from podyard.web import commands, forms
from podyard.web.job_place import JobPlace, node_of, place_of
from podyard.web.render import ConsoleRoute, form_with_file, page, project_url, see_other

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
        asked = job_sources.look(
            request, JobRequest(run=_run(fields), num_nodes=_num_nodes(fields, node))
        )
        job_id = fields.get("job_id", "").strip() or None
        job = context.write(
            request, lambda uow: jobs.create(uow, fleet, caller, project, zone, job_id, asked, node)
        )
    except PodyardError as error:
        return _form_page(request, project, fields, error)
    return see_other(project_url(project, "jobs", job.zone, job.job_id))


def _num_nodes(fields: Mapping[str, str], node: str | NodeSpec) -> int:
    """How many slices are made; a node that exists is one."""
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
    caller = context.principal(request)
    caller.require("podyard.jobs.create", project, f"projects/{project}/locations/-/jobs")
    place = place_of(request, project, fields)
    lines: list[commands.Command] = []
    count = 1
    try:
        count = _num_nodes(fields, node_of({**place.fields, "node": place.place})[1])
    except PodyardError as wrong:
        error = error or wrong
    if error is None and any(fields.get(name) for name in ("command", "source")):
        try:
            run = _run(fields)
            check_user_program(run)
            lines = _commands(project, fields.get("job_id", "").strip(), run, place, count)
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
        more_places=place.more,
        place=place.place,
        node=place.node,
        choice=place.choice,
        price=place.price,
        num_nodes=count,
        no_price=place.no_price,
    )


def _commands(
    project: str, job_id: str, run: UserProgram, place: JobPlace, count: int
) -> list[commands.Command]:
    zone, node = node_of({**place.fields, "node": place.place})
    flags = [("--project", project), ("--zone", zone)]
    if isinstance(node, NodeSpec):
        flags += [
            ("--accelerator-type", node.accelerator_type),
            ("--version", node.runtime_version),
        ]
        flags += [("--num-nodes", str(count))] if count > 1 else []
    else:
        flags.append(("--node", node))
    given = {
        "--run": run.source.uri if run.source else "",
        "--entry": run.entry,
        "--module": run.module,
    }
    given |= {"--command": run.command, "--setup": run.setup, "--output-dir": run.output}
    flags += [(name, value) for name, value in given.items() if value]
    flags += [("--env", f"{name}={value}") for name, value in run.env.items()]
    words = ["podyard", "job", "submit", *([job_id] if job_id else [])]
    rest = [f"-- {shlex.join(run.args)}"] if run.args else []
    return [commands.Command("podyard", commands.line(words, flags, rest))]
