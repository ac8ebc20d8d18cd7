"""The machines that run replicas and hosts, for the owner of the platform."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.control.access import identity
from podyard.control.platform import agents
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.agent import clock_warning
from podyard.domain.principal import Principal
from podyard.http import context, join_command
from podyard.web.kit.commands import Command
from podyard.web.kit.lists import ListColumn, ListView
from podyard.web.kit.render import ConsoleRoute, form_of, page, project_url, see_other

COLUMNS = (
    ListColumn("name", "Agent"),
    ListColumn("state", "State", sorts=False),
    ListColumn("address", "Address"),
    ListColumn("replicas", "Replicas", sorts=False, is_number=True),
    ListColumn("hosts", "Hosts", sorts=False, is_number=True),
    ListColumn("cores", "Cores", is_number=True),
    ListColumn("memory", "Memory", is_number=True),
    ListColumn("labels", "Labels", sorts=False),
    ListColumn("kernels", "Kernels", sorts=False),
    ListColumn("seen", "Last heard of"),
    ListColumn("problem", "Problem", sorts=False),
)

router = APIRouter(prefix="/console/{project}/machines", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    return _page(request, project)


@router.post("/{action}")
async def act(request: Request, project: str, action: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _act(request, project, action, fields))


def _act(request: Request, project: str, action: str, fields: Mapping[str, str]) -> Response:
    caller = context.principal(request)
    caller.require("podyard.agents.list", "*", "agents")
    try:
        if action == "token":
            _, secret = context.write(
                request, lambda uow: agents.create_join_token(uow, caller, None)
            )
            # Shown once, on the page that answers: no URL and no log has it.
            settings = context.platform(request).settings
            return _page(
                request,
                project,
                command=join_command.command(settings, str(request.base_url), secret),
            )
        if action not in _ACTIONS:
            raise invalid(f"there is no {action} here")
        name = fields.get("agent", "")
        context.write(request, lambda uow: _ACTIONS[action](uow, caller, name))
    except PodyardError as error:
        return _page(request, project, error=error)
    return see_other(project_url(project, "machines"))


_ACTIONS: Mapping[str, Callable[[UnitOfWork, Principal, str], object]] = {
    "drain": agents.drain,
    "resume": agents.resume,
    "remove": lambda uow, caller, name: agents.remove(uow, caller, name, force=False),
}


def _page(
    request: Request, project: str, *, command: str = "", error: PodyardError | None = None
) -> Response:
    caller = context.principal(request)
    caller.require("podyard.agents.list", "*", "agents")
    platform = context.platform(request)

    view = ListView(request, project_url(project, "machines"), COLUMNS, "name")

    def body(uow: UnitOfWork) -> tuple[Sequence[agents.AgentUse], int]:
        identity.project_row(uow, project)
        rows = view.take(agents.use_page(uow, caller, view.query))
        return rows, len({use.agent.company for use in agents.list_uses(uow, caller)})

    now, lease_seconds = platform.clock.now(), platform.database.leases.agent_seconds
    uses, companies = context.read(request, body)
    rows = [
        {
            "agent": use.agent,
            "state": use.agent.shown_state(now, lease_seconds),
            "replicas": use.replicas,
            "hosts": use.hosts,
            "problem": use.agent.problem or clock_warning(use.agent.clock_offset_millis),
        }
        for use in uses
    ]
    return page(
        request,
        "machines.html",
        status=200 if error is None else error.code.http_status,
        section="machines",
        project=project,
        rows=rows,
        wide=True,
        view=view,
        companies=companies,
        command=command,
        error=error.message if error else None,
        url=view.url,
        commands=_commands([use.agent.agent_id for use in uses]),
    )


def _commands(names: list[str]) -> list[Command]:
    name = shlex.quote(names[-1]) if names else "NAME"
    return [
        Command("list", f"podyard agent list\npodyard agent describe {name}"),
        Command("join", "podyard agent token"),
        Command(
            "maintain",
            f"podyard agent drain {name}\npodyard agent resume {name}\npodyard agent remove {name}",
        ),
    ]
