"""Pages of nodes: the list, one node, the form that creates one, and what can be done to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base import boxes
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.control.access import identity
from podyard.control.billing import usages
from podyard.control.billing.dashboard import node_costs
from podyard.control.billing.snapshots import snapshot
from podyard.control.compute import host_logs, hosts, node_list, nodes, notebooks
from podyard.control.jobs import type_change, views
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import tpu_env, worker_environment
from podyard.domain.job import Job
from podyard.domain.node import INTERRUPTIBLE, NODE, Node, NodeRecord
from podyard.domain.principal import Principal
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import Price
from podyard.web.billing.common import read_again
from podyard.web.kit import client_commands, commands, forms, live
from podyard.web.kit.lists import ListColumn, ListView, selection_of
from podyard.web.kit.render import (
    ConsoleRoute,
    error_page,
    form_of,
    fragment,
    page,
    project_url,
    see_other,
)
from podyard.web.kit.selection import Bulk, act_on_selected
from podyard.web.nodes import host_charts
from podyard.web.nodes.slice_picture import slice_picture
from podyard.web.settings.operator import NODE_FAULTS

JOBS_SHOWN_MAX = 20
HOSTS_SHOWN_MAX = 64
# templates that change each at their own pace
NODE_PARTS = ("node_head", "node_cost", "node_use", "node_rest")
HOST_WORDS = {"VIRTUAL": "Not started"}  # the API's word says nothing to those who meet it first

COLUMNS = (
    ListColumn("name", "Node"),
    ListColumn("state", "State"),
    ListColumn("zone", "Zone"),
    ListColumn("type", "Type"),
    ListColumn("topology", "Topology", sorts=False, usual=False),
    ListColumn("hosts", "Hosts", is_number=True),
    ListColumn("usage", "Usage"),
    ListColumn("price", "Per hour", is_number=True),
    ListColumn("billed", "Billed", sorts=False, is_number=True, usual=False),
    ListColumn("cost", "Cost so far", is_number=True),
    ListColumn("created", "Age", is_number=True),
    ListColumn("by", "By", usual=False),
    ListColumn("labels", "Labels", sorts=False, usual=False),
    ListColumn("version", "Runtime version", sorts=False, usual=False),
)

router = APIRouter(prefix="/console/{project}/nodes", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with what it costs. `usage` None: the caller may not see the bill, or nothing was
    metered yet."""

    node: Node | NodeRecord
    kind: AcceleratorType
    price: Price | None
    no_price: str
    usage: usages.NodeUsage | None
    url: str


@router.get("")
def show_list(request: Request, project: str) -> Response:
    values = read_again(request, lambda uow: _list_values(uow, request, project))
    return page(
        request, "nodes.html", section="nodes", wide=True, live=values["view"].live, **values
    )


@router.get("/live")
async def show_list_live(request: Request, project: str) -> Response:
    return await live.stream_list(
        request,
        project,
        "nodes",
        lambda uow: fragment("nodes_part.html", **_list_values(uow, request, project)),
    )


@router.post("/actions")
async def act_on_list(request: Request, project: str) -> Response:
    fields, picked = await selection_of(request)
    caller, fleet = context.principal(request), context.platform(request).fleet

    def act_by(verb: str) -> Callable[[str, str], object]:
        def body(zone: str, node_id: str) -> None:
            context.write(
                request, lambda uow: _VERBS[verb](uow, fleet, caller, project, zone, node_id)
            )

        return body

    verbs = {
        verb: Bulk(verb.capitalize(), "node", text, done, act_by(verb))
        for verb, (text, done) in _BULK.items()
    }
    url = project_url(project, "nodes")
    return await context.in_thread(
        lambda: act_on_selected(request, project, url, fields, picked, verbs)
    )


@router.get("/new")
def create_form(request: Request, project: str) -> Response:
    return _create_page(request, project, dict(request.query_params), None)


@router.post("/new")
async def create(request: Request, project: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _create(request, project, fields))


def _create(request: Request, project: str, fields: Mapping[str, str]) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    zone, node_id = fields.get("zone", ""), fields.get("node_id", "").strip()
    try:
        spec = forms.node_spec(fields)
        context.write(
            request, lambda uow: nodes.create(uow, fleet, caller, project, zone, node_id, spec)
        )
    except PodyardError as error:
        return _create_page(request, project, fields, error)
    return see_other(project_url(project, "nodes", zone, node_id))


def _create_page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    caller.require("tpu.nodes.create", project, f"projects/{project}/locations/-")

    def body(uow: UnitOfWork) -> PlatformTime:
        identity.project_row(uow, project)
        return uow.now

    choice = forms.choose(fleet, fields, context.read(request, body))
    try:
        spec = forms.node_spec({**fields, **_choose(choice)})
        doubt = None
    except PodyardError as wrong:  # labels or description: the commands are shown without them
        doubt = wrong
        spec = forms.node_spec(_choose(choice))
    node_id = fields.get("node_id", "").strip()
    return page(
        request,
        "node_new.html",
        status=refusal.code.http_status if (refusal := error or doubt) else 200,
        section="nodes",
        project=project,
        choice=choice,
        fields={name: fields.get(name, "") for name in ("node_id", "labels", "description")},
        error=error.message if error else None,
        doubt=doubt.message if doubt and not error else None,
        commands=commands.create_node(project, choice.zone, node_id, spec)
        + client_commands.create_node(project, choice.zone, node_id or "NODE", spec),
        form_url=project_url(project, "nodes", "new"),
    )


@router.get("/{zone}/{node_id}")
def show(request: Request, project: str, zone: str, node_id: str) -> Response:
    def body(uow: UnitOfWork) -> dict[str, Any]:
        values = _node_values(uow, request, project, zone, node_id)
        return {**values, "environment": _environment(uow, request, values["row"].node)}

    url = project_url(project, "nodes", zone, node_id)
    return page(
        request, "node.html", section="nodes", **context.read(request, body), live=f"{url}/live"
    )


def _environment(uow: UnitOfWork, request: Request, node: Node) -> dict[str, Any] | None:
    """Return what programs on one worker find. None before the node has hosts."""
    if not node.hosts:
        return None
    given = request.query_params.get("worker", "")
    if given and not (given.isdecimal() and int(given) < len(node.hosts)):
        raise invalid(
            f"worker {given!r} does not exist: this node has workers 0 to {len(node.hosts) - 1}",
            "worker",
        )
    worker = int(given or 0)
    facts, _ = hosts.list_hosts(
        uow, context.principal(request), node.project, node.zone, node.node_id
    )
    variables, attribute = worker_environment(facts, worker), tpu_env(facts, worker)
    return {
        "worker": worker,
        "chosen": bool(given),
        "texts": [
            (
                "Variables",
                "\n".join(f"{name}={value}" for name, value in sorted(variables.items())),
            ),
            (
                "Metadata attribute tpu-env",
                "\n".join(f"{name}: '{value}'" for name, value in attribute.items()),
            ),
        ],
    }


@router.get("/{zone}/{node_id}/live")
async def show_live(request: Request, project: str, zone: str, node_id: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        try:
            values = _node_values(uow, request, project, zone, node_id)
        except PodyardError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            gone = fragment(
                "gone.html", text=f"Node {node_id} is gone.", url=project_url(project, "nodes")
            )
            return live.Parts({**dict.fromkeys(NODE_PARTS, ""), NODE_PARTS[0]: gone}, over=True)
        return live.Parts({part: fragment(f"{part}.html", **values) for part in NODE_PARTS})

    return await live.stream(request, project, parts)


@router.get("/{zone}/{node_id}/notebook")
def show_notebook(request: Request, project: str, zone: str, node_id: str) -> Response:
    """Show where the node's notebook is; the page refreshes until its host runs."""
    caller = context.principal(request)
    place = context.read(
        request, lambda uow: notebooks.find_notebook(uow, caller, project, zone, node_id)
    )
    return page(
        request,
        "nodes/notebook.html",
        section="nodes",
        project=project,
        node_id=node_id,
        node_url=project_url(project, "nodes", zone, node_id),
        place=place,
        commands=[commands.notebook_command(project, zone, node_id)],
    )


@router.post("/{zone}/{node_id}/{verb}")
async def act(request: Request, project: str, zone: str, node_id: str, verb: str) -> Response:
    await form_of(request)
    return await context.in_thread(lambda: _act(request, project, zone, node_id, verb))


def _act(request: Request, project: str, zone: str, node_id: str, verb: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> None:
        if verb == "preempt":
            nodes.preempt(uow, caller, project, zone, node_id)
        elif verb == "notebook":
            notebooks.open_notebook(uow, caller, project, zone, node_id, 0)
        elif verb in _VERBS:
            _VERBS[verb](uow, fleet, caller, project, zone, node_id)
        else:
            raise not_found(request.url.path)

    try:
        context.write(request, body)
    except PodyardError as error:
        return _refusal(request, project, zone, node_id, error)
    end = {"delete": (), "notebook": (zone, node_id, "notebook")}.get(verb, (zone, node_id))
    return see_other(project_url(project, "nodes", *end))


_VERBS = {"stop": nodes.stop, "start": nodes.start, "delete": nodes.delete}
# What can be done to the selected nodes of the list: what it means, and what is said once it is
# under way.
_BULK = {
    "stop": (
        (
            "Their slices are given back, and they are no longer billed. Jobs on them lose "
            "their attempt."
        ),
        "stopping",
    ),
    "start": ("They get slices again if there is room, and are billed from READY on.", "starting"),
    "delete": (
        "The nodes and their hosts are deleted for good. What they have cost stays on the bill.",
        "being deleted",
    ),
}


def _refusal(
    request: Request, project: str, zone: str, node_id: str, error: PodyardError
) -> Response:
    """The node's page with the reason on top; without a node, the reason alone."""
    try:
        values = context.read(
            request, lambda uow: _node_values(uow, request, project, zone, node_id)
        )
    except PodyardError:
        return error_page(request, error.code.http_status, "That did not work", error.message)
    status, shown = error.code.http_status, {**values, "environment": None}
    return page(
        request,
        "node.html",
        status=status,
        section="nodes",
        **shown,
        error=error.message,
        live=None,
    )


def _list_values(uow: UnitOfWork, request: Request, project: str) -> dict[str, Any]:
    caller = context.principal(request)
    view = ListView(request, project_url(project, "nodes"), COLUMNS, "name")
    sees_bill = caller.may("podyard.billing.view", project)
    costs: Mapping[str, int] = {}
    if sees_bill and view.query.sort == node_list.COST:
        costs = node_costs(snapshot(uow, default_rate_card(), caller, project))
    found = node_list.list_page(uow, caller, project, view.query, costs)
    view.before, view.after = found.before, found.after
    view.offer(node_list.list_facets(uow, caller, project))
    used = {}
    if found.rows and sees_bill:
        keys = [node.node_key for node in found.rows]
        usage = usages.usage(uow, default_rate_card(), caller, project, resource_keys=keys)
        used = {node.resource_key: node for node in usage.nodes}
    rows = [_row(node, used.get(node.node_key), uow.now) for node in found.rows]
    return {
        "project": project,
        "view": view,
        "rows": rows,
        "now": uow.now,
        "verbs": [
            (verb, verb.capitalize()) for verb in _BULK if caller.may(f"tpu.nodes.{verb}", project)
        ],
    }


def _row(node: Node | NodeRecord, usage: usages.NodeUsage | None, now: PlatformTime) -> NodeRow:
    price, why = forms.price_of(
        node.spec.accelerator_type, node.zone, str(node.spec.usage_class), now
    )
    kind = kind_of(node.spec.accelerator_type, node.spec.topology)
    return NodeRow(
        node, kind, price, why, usage, project_url(node.project, "nodes", node.zone, node.node_id)
    )


def _resizable(on_node: Sequence[Job], caller: Principal, project: str) -> set[str]:
    """Return the keys of the jobs that the caller can resize to another type."""
    if not caller.may("podyard.jobs.resize", project):
        return set()
    return {job.job_key for job in on_node if type_change.keeps_type(job) is None}


def _node_values(
    uow: UnitOfWork, request: Request, project: str, zone: str, node_id: str
) -> dict[str, Any]:
    """Everything that a node's page shows, from one snapshot."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    node = nodes.get(uow, caller, project, zone, node_id)
    usage = None
    if caller.may("podyard.billing.view", project):
        found = usages.usage(uow, default_rate_card(), caller, project, node.name)
        usage = next((item for item in found.nodes if item.resource_key == node.node_key), None)
    row = _row(node, usage, uow.now)
    on_it = views.jobs_on_node(uow, caller, project, zone, node.node_key, JOBS_SHOWN_MAX)
    count = len(node.hosts)
    first = {
        job.job_key: node.slice_index * count if job.spec.num_nodes > 1 else 0 for job in on_it
    }
    use = context.platform(request).host_use.of_jobs(
        {key: range(at, at + count) for key, at in first.items()}
    )
    seconds = context.platform(request).clock.now().nanos / NANOS_PER_SECOND
    return {
        "project": project,
        "row": row,
        "use_charts": host_charts.charts_of(use, seconds),
        "use_now": host_charts.newest_of(use, seconds),
        "hosts_shown_max": HOSTS_SHOWN_MAX,
        "host_words": HOST_WORDS,
        "boxed": (boxes.BOXED, boxes.BOXED_WITHOUT_ROOT),
        "isolation": sorted({host.isolation for host in node.hosts if host.isolation}),
        "software": sorted({host.software for host in node.hosts if host.software}),
        "history": views.node_history(uow, caller, project, zone, node_id),
        "programs": hosts.programs(uow, node.node_key),
        "host_logs": host_logs.last_lines(
            context.platform(request).settings.data, node.node_key, len(node.hosts)
        ),
        "jobs": on_it,
        "resizable": _resizable(on_it, caller, project),
        "picture": slice_picture(uow, fleet, node.node_key, node.node_id),
        "actions": _actions(row, caller, project),
        "commands": commands.node_commands(project, zone, node_id),
        "may_use_hosts": caller.may(hosts.USE, project),
        "node_faults": [(name, label) for name, (label, _) in NODE_FAULTS.items()],
        "age_seconds": uow.now.seconds_since(node.created),
    }


def _actions(row: NodeRow, caller: Principal, project: str) -> list[tuple[str, str, bool]]:
    """(verb, label, whether it destroys) of what the node's state and the caller's roles allow; the
    use case decides once more."""
    node = row.node
    refused = set()
    if not row.kind.is_single_host:
        refused.add("stop")
    if node.spec.usage_class not in INTERRUPTIBLE:
        refused.add("preempt")
    found = []
    for verb in ("start", "stop", "preempt", "delete"):
        permission = "podyard.nodes.preempt" if verb == "preempt" else f"tpu.nodes.{verb}"
        if (
            verb not in refused
            and NODE.allows(node.state, verb)
            and caller.may(permission, project)
        ):
            found.append((verb, verb.capitalize(), verb in ("delete", "preempt")))
    return found


def _choose(choice: forms.NodeChoice) -> dict[str, str]:
    return {
        "accelerator_type": choice.accelerator_type,
        "usage": choice.usage,
        "runtime_version": choice.runtime_version,
    }
