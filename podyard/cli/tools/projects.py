"""`podyard project ...`: one project, or those of a whole class at once."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.base.text.braces import expand_braces
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, data_option, output_option, pairs, quiet_option
from podyard.cli.kit.output import emit, say
from podyard.cli.kit.terminal import confirm
from podyard.cli.tools.project_reset import reset_project

PROJECTS_MAX = 500  # in one command: more is a slip of the hand, as {1..10000}
BUDGET_NAME = "project"
# What a student may do: everything in the project but change its quota, its budget and its members.
STUDENT_ROLES = ("tpu.admin", "storage.objectUser", "billing.viewer")
STUDENTS_DOMAIN = "students.example"  # RFC 2606: it can belong to nobody
_PROJECT = {
    "PROJECT": "projectId",
    "NUMBER": "projectNumber",
    "CHIPS_MAX": "quota.chips",
    "CREATED": "createTime",
    "LABELS": "labels|text",
}
_MADE = {
    "PROJECT": "projectId",
    "CHIPS_MAX": "quota.chips",
    "BUDGET": "budget|usd",
    "EMAIL": "email",
    "LINK": "link",
}
_quota_option = click.option(
    "--quota", metavar="chips=N", help="Chips that a project may hold at once, in all zones."
)


@click.group(cls=CommandGroup, default="list")
def project() -> None:
    """Manage projects."""


@project.command(name="create")
@click.argument("names", nargs=-1, required=True, metavar="PROJECT...")
@data_option
@click.option("--labels", metavar="K=V,...", help="Labels of the projects.")
@_quota_option
@click.option(
    "--budget",
    metavar="USD",
    help="Monthly budget of each project. When it is used up, nodes are stopped.",
)
@click.option(
    "--invite", is_flag=True, help="Print a link for each project that signs a browser in, once."
)
@click.option(
    "--invite-domain",
    metavar="DOMAIN",
    default=STUDENTS_DOMAIN,
    show_default=True,
    help="Domain of invited emails.",
)
@output_option
def create_projects(  # noqa: PLR0913
    names: tuple[str, ...],
    data: str | None,
    labels: str | None,
    quota: str | None,
    budget: str | None,
    invite: bool,
    invite_domain: str,
    output: str,
) -> None:
    """Create projects. PROJECT may have braces: student-{01..20}, {red,blue}-team.

    Those who are invited are PROJECT@DOMAIN. They may do everything in their project but change its
    quota, its budget and its members, and they see no other project.
    """
    wanted = _expand(names)
    client = client_of(data)
    body = {"labels": pairs(labels, "--labels"), "quota": _quota(quota)}
    made: list[Item] = []
    try:
        for name in wanted:
            made.append(client.call("POST", "/podyard/v1/projects", {"projectId": name, **body}))
            if budget is not None:
                made[-1]["budget"] = _set_budget(client, name, budget)
            if invite:
                made[-1].update(_invite(client, name, f"{name}@{invite_domain}"))
    finally:
        # Links are shown once: those of the projects that were made are not lost with an error.
        if made:
            shown = made if output == "table" or len(made) > 1 else made[0]
            emit(shown, output, _MADE if budget is not None or invite else _PROJECT)


@project.command(name="list")
@data_option
@lists(_PROJECT)
def list_projects(data: str | None) -> Iterable[Item]:
    """List the projects that you may see."""
    return _read_projects(client_of(data))


@project.command(name="update")
@click.argument("name", metavar="PROJECT")
@data_option
@click.option(
    "--quota",
    metavar="chips=N",
    required=True,
    help="Chips that it may hold; chips=none removes the limit.",
)
@output_option
def update_project(name: str, data: str | None, quota: str, output: str) -> None:
    """Change the quota of PROJECT. What it holds beyond it stays."""
    path = f"/podyard/v1/projects/{quote(name, safe='')}"
    emit(client_of(data).call("PATCH", path, {"quota": _quota(quota)}), output, _PROJECT)


@project.command(name="reset")
@click.argument("patterns", nargs=-1, required=True, metavar="PROJECT...")
@data_option
@quiet_option
def reset(patterns: tuple[str, ...], data: str | None, quiet: bool) -> None:
    """End the jobs and delete the nodes, requests, reservations, buckets and webhooks of projects.

    PROJECT may have * and {01..20}.

    Projects keep their quota, budgets, members and bill. Jobs that have ended stay listed, since
    the bill names them.
    """
    client = client_of(data)
    names = _matching(client, patterns)
    if not quiet:
        confirm(f"Delete everything in {', '.join(names)}?", "--yes")
    for name in names:
        done = reset_project(client_of(data, name), _buckets_client(data, name))
        say(f"{name}: {', '.join(done) or 'was empty'}")


def _buckets_client(data: str | None, name: str) -> Client | None:
    from podyard.cli.storage.storage import storage_client

    try:
        return storage_client(data, name)
    except PodyardError as error:
        say(f"warning: buckets are kept: {error.message}")
        return None


def _expand(names: Sequence[str]) -> list[str]:
    try:
        found = [name for text in names for name in expand_braces(text, PROJECTS_MAX)]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if len(found) > PROJECTS_MAX:
        raise click.UsageError(
            f"{len(found)} projects are more than {PROJECTS_MAX}, the most of one command"
        )
    return found


def _quota(text: str | None) -> dict[str, Any]:
    """As the API takes it."""
    if text is None:
        return {}
    key, _, number = text.partition("=")
    if key != "chips" or not (number.isdecimal() or number == "none"):
        raise click.UsageError(f"--quota: {text!r} is not chips=N")
    return {"chips": None if number == "none" else int(number)}


def _set_budget(client: Client, name: str, amount: str) -> str:
    path = f"/podyard/v1/projects/{quote(name, safe='')}/budgets/{BUDGET_NAME}"
    found = client.call("PUT", path, {"amount": amount, "actions": ["refuse-new-nodes", "stop"]})
    return str(found["amount"])


def _invite(client: Client, name: str, email: str) -> dict[str, str]:
    path = f"/podyard/v1/projects/{quote(name, safe='')}/invitations"
    found = client.call("POST", path, {"email": email, "roles": list(STUDENT_ROLES)})
    return {"email": email, "link": f"{client.target.url}/sign-in?code={found['code']}"}


def _read_projects(client: Client) -> list[Item]:
    found: list[Item] = client.call("GET", "/podyard/v1/projects")["projects"]
    return found


def _matching(client: Client, patterns: Sequence[str]) -> list[str]:
    """The projects of the patterns; NOT_FOUND for a pattern that means none."""
    every = [found["projectId"] for found in _read_projects(client)]
    chosen: dict[str, None] = {}
    for pattern in _expand(patterns):
        names = fnmatch.filter(every, pattern)
        if not names:
            raise PodyardError(
                Code.NOT_FOUND, f"no project matches {pattern!r}; `podyard project list` shows them"
            )
        chosen.update(dict.fromkeys(names))
    return list(chosen)


COMMANDS = {"project": project}
