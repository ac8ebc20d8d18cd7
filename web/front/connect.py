"""Ways of clients to this Podyard: a page, and a panel on every page that shows it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.control.access import identity
from podyard.control.compute import nodes
from podyard.control.compute.instances import life
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import host_name
from podyard.domain.node import Node
from podyard.http import client_variables, context
from podyard.web.instances import commands as instance_commands
from podyard.web.kit import client_commands, forms
from podyard.web.kit.commands import EXPORTS, Command, line
from podyard.web.kit.render import ConsoleRoute, page

TOKEN = "$PODYARD_TOKEN"  # the session's token is in no page: the reader has it
TOKEN_FILE = "$HOME/.podyard-token"
_READ_TOKEN = """\
# Paste the token that you sign in with; `podyard env` prints it on the machine of this Podyard.
read -rs PODYARD_TOKEN && export PODYARD_TOKEN
"""
_WRITE_TOKEN = f'(umask 077; printf %s "{TOKEN}" > "{TOKEN_FILE}")\n'


@dataclasses.dataclass(frozen=True, slots=True)
class _Target:
    """The node or instance that is connected to."""

    name: str
    zone: str
    shell: Sequence[Command]


router = APIRouter(prefix="/console/{project}/connect", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str, node: str = "", instance: str = "") -> Response:
    """`node`, `instance`: ZONE/ID of what is connected to."""
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> _Target | None:
        identity.project_row(uow, project)
        zone, _, name = (node or instance).partition("/")
        if node:
            target = nodes.get(uow, caller, project, zone, name)
            return _Target(name, zone, _host_commands(project, target))
        if instance:
            shell = instance_commands.connect_commands(life.get(uow, caller, project, zone, name))
            return _Target(name, zone, shell)
        return None

    target = context.read(request, body)
    usual = forms.DEFAULT_ZONE if forms.DEFAULT_ZONE in fleet.zones else next(iter(fleet.zones))
    zone = target.zone if target else usual
    url = str(request.base_url).rstrip("/")
    return page(
        request,
        "connect.html",
        section="connect",
        project=project,
        target=target,
        server=url,
        ssh=target.shell if target else [],
        shell=_shell_commands(url, project, zone),
        clients=_client_commands(project, zone),
    )


def _shell_commands(url: str, project: str, zone: str) -> list[Command]:
    own = _exports(client_variables.own_variables(url, TOKEN, project, zone))
    gcloud = _exports(client_variables.gcloud_variables(url, TOKEN_FILE, project, zone))
    libraries = _exports(client_variables.library_variables(url, TOKEN, project))
    return [
        Command("On the machine of this Podyard", EXPORTS),
        Command("Podyard and curl", _READ_TOKEN + own),
        Command("gcloud, without podyard installed", _READ_TOKEN + _WRITE_TOKEN + gcloud),
        Command("Terraform and Google's libraries", _READ_TOKEN + libraries),
    ]


def _client_commands(project: str, zone: str) -> list[Command]:
    place = [("--project", project), ("--zone", zone)]
    words = ["gcloud", "compute", "tpus", "tpu-vm", "list"]
    return [
        Command("gcloud", f"{EXPORTS}\n{line(words, place, [])}"),
        *client_commands.list_nodes(project, zone),
    ]


def _host_commands(project: str, node: Node) -> list[Command]:
    """`podyard tpu ssh-config` knows addresses, ports and keys, also of hosts that have not
    started."""
    place = [("--project", project), ("--zone", node.zone)]
    first = host_name(node.node_id, 0)
    config = line(["podyard", "tpu", "ssh-config", node.node_id], place, []) + " >> ~/.ssh/config"
    gcloud = line(
        ["gcloud", "compute", "tpus", "tpu-vm", "ssh", node.node_id], place, ["--worker=0"]
    )
    found = [
        Command("ssh", line(["podyard", "tpu", "ssh", node.node_id], place, ["--worker=0"])),
        Command("gcloud", f"{EXPORTS}\n{gcloud}"),
        Command("Your own ssh", f"# Once for each node\n{config}\nssh {shlex.quote(first)}"),
        Command(
            "VS Code",
            f"# Once for each node\n{config}\ncode --remote ssh-remote+{shlex.quote(first)}",
        ),
    ]
    if len(node.hosts) > 1:
        every = line(
            ["podyard", "tpu", "exec", node.node_id], place, ["--worker=all", "-- hostname"]
        )
        found.append(Command("All workers", every))
    return found


def _exports(variables: Mapping[str, str]) -> str:
    """Values are in double quotes, so that the shell fills in the token."""
    return "\n".join(f'export {name}="{value}"' for name, value in variables.items())
