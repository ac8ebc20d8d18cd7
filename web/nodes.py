"""Pages of nodes: the list, one node, the form that creates one, and what can be done to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base import boxes
from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError, not_found
from podyard.control.access import identity
from podyard.control.billing import usages
from podyard.control.compute import hosts, nodes
from podyard.control.jobs import views
from podyard.db import fleet as fleet_rows
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.node import INTERRUPTIBLE, NODE, Node
from podyard.domain.principal import Principal
from podyard.hardware.accelerator_types import AcceleratorType, kind_of
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import Price
from podyard.web import commands, forms, host_logs, live
from podyard.web.operator import NODE_FAULTS
from podyard.web.render import ConsoleRoute, error_page, form_of, fragment, page, project_url, see_other
from podyard.web.torus import Part, pod_picture

JOBS_SHOWN_MAX = 20
HOSTS_SHOWN_MAX = 64
NODE_PARTS = ("node_head", "node_cost", "node_rest")  # templates that change each at their own pace

router = APIRouter(prefix="/console/{project}/nodes", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with what it costs. `usage` None: the caller may not see the bill, or nothing was metered yet."""

    node: Node
    kind: AcceleratorType
    price: Price | None
    no_price: str
    usage: usages.NodeUsage | None
    url: str


@router.get("")
def node_list(request: Request, project: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet
    rows = context.read(request, lambda uow: _rows(uow, fleet, caller, project))
    return page(
        request, "nodes.html", section="nodes", project=project, rows=rows, live=project_url(project, "nodes", "live")
    )


@router.get("/live")
async def node_list_live(request: Request, project: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def parts(uow: UnitOfWork) -> live.Parts:
        rows = _rows(uow, fleet, caller, project)
        return {"nodes": fragment("nodes_part.html", rows=rows, project=project)}, False

    return await live.stream(request, project, parts)


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
        context.write(request, lambda uow: nodes.create(uow, fleet, caller, project, zone, node_id, spec))
    except PodyardError as error:
        return _create_page(request, project, fields, error)
    return see_other(project_url(project, "nodes", zone, node_id))


def _create_page(request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None) -> Response:
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
        commands=commands.create_node(project, choice.zone, node_id, spec),
        form_url=project_url(project, "nodes", "new"),
    )


@router.get("/{zone}/{node_id}")
def show(request: Request, project: str, zone: str, node_id: str) -> Response:
    values = context.read(request, lambda uow: _node_values(uow, request, project, zone, node_id))
    url = project_url(project, "nodes", zone, node_id)
    return page(request, "node.html", section="nodes", **values, live=f"{url}/live")


@router.get("/{zone}/{node_id}/live")
async def show_live(request: Request, project: str, zone: str, node_id: str) -> Response:
    def parts(uow: UnitOfWork) -> live.Parts:
        try:
            values = _node_values(uow, request, project, zone, node_id)
        except PodyardError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            gone = fragment("gone.html", text=f"Node {node_id} is gone.", url=project_url(project, "nodes"))
            return {**dict.fromkeys(NODE_PARTS, ""), NODE_PARTS[0]: gone}, True
        return {part: fragment(f"{part}.html", **values) for part in NODE_PARTS}, False

    return await live.stream(request, project, parts)


@router.post("/{zone}/{node_id}/{verb}")
async def act(request: Request, project: str, zone: str, node_id: str, verb: str) -> Response:
    await form_of(request)
    return await context.in_thread(lambda: _act(request, project, zone, node_id, verb))


def _act(request: Request, project: str, zone: str, node_id: str, verb: str) -> Response:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> None:
        if verb == "preempt":
            nodes.preempt(uow, caller, project, zone, node_id)
        elif verb in _VERBS:
            _VERBS[verb](uow, fleet, caller, project, zone, node_id)
        else:
            raise not_found(request.url.path)

    try:
        context.write(request, body)
    except PodyardError as error:
        return _refusal(request, project, zone, node_id, error)
    return see_other(project_url(project, "nodes", *(() if verb == "delete" else (zone, node_id))))


_VERBS = {"stop": nodes.stop, "start": nodes.start, "delete": nodes.delete}


def _refusal(request: Request, project: str, zone: str, node_id: str, error: PodyardError) -> Response:
    """The node's page with the reason on top; without a node, the reason alone."""
    try:
        values = context.read(request, lambda uow: _node_values(uow, request, project, zone, node_id))
    except PodyardError:
        return error_page(request, error.code.http_status, "That did not work", error.message)
    return page(
        request, "node.html", status=error.code.http_status, section="nodes", **values, error=error.message, live=None
    )


def _rows(uow: UnitOfWork, fleet: Fleet, caller: Principal, project: str) -> list[NodeRow]:
    identity.project_row(uow, project)
    found = nodes.list_nodes(uow, fleet, caller, project, None)
    used = {}
    if caller.may("podyard.billing.view", project):
        usage = usages.usage(uow, default_rate_card(), caller, project)
        used = {node.resource_key: node for node in usage.nodes}
    return [_row(node, used.get(node.node_key), uow.now) for node in found]


def _row(node: Node, usage: usages.NodeUsage | None, now: PlatformTime) -> NodeRow:
    price, why = forms.price_of(node.spec.accelerator_type, node.zone, str(node.spec.usage_class), now)
    kind = kind_of(node.spec.accelerator_type, node.spec.topology)
    return NodeRow(node, kind, price, why, usage, project_url(node.project, "nodes", node.zone, node.node_id))


def _node_values(uow: UnitOfWork, request: Request, project: str, zone: str, node_id: str) -> dict[str, Any]:
    """Everything that a node's page shows, from one snapshot."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    node = nodes.get(uow, caller, project, zone, node_id)
    usage = None
    if caller.may("podyard.billing.view", project):
        found = usages.usage(uow, default_rate_card(), caller, project, node.name)
        usage = next((item for item in found.nodes if item.resource_key == node.node_key), None)
    row = _row(node, usage, uow.now)
    return {
        "project": project,
        "row": row,
        "hosts_shown_max": HOSTS_SHOWN_MAX,
        "boxed": boxes.sentence(""),
        "isolation": sorted({host.isolation for host in node.hosts if host.isolation}),
        "software": sorted({host.software for host in node.hosts if host.software}),
        "history": views.node_history(uow, caller, project, zone, node_id),
        "programs": hosts.programs(uow, node.node_key),
        "host_logs": host_logs.last_lines(context.platform(request).settings.data, node.node_key, len(node.hosts)),
        "jobs": views.jobs_on_node(uow, caller, project, zone, node.node_key, JOBS_SHOWN_MAX),
        "picture": _picture(uow, fleet, node),
        "actions": _actions(row, caller, project),
        "commands": commands.node_commands(project, zone, node_id),
        "node_faults": [(name, label) for name, (label, _) in NODE_FAULTS.items()],
        "age_seconds": uow.now.seconds_since(node.created),
    }


def _picture(uow: UnitOfWork, fleet: Fleet, node: Node) -> Mapping[str, Any] | None:
    """The node's slice in its pod, among the chips that others hold. None while it has no slice."""
    slices = fleet_rows.load(uow, fleet).slices
    own = next((item for item in slices if item.node_key == node.node_key), None)
    if own is None:
        return None
    pod = fleet.pod(own.pod_id)
    held = 0
    for item in slices:
        if item.pod_id == own.pod_id:
            held |= item.chips
    return {
        "pod": pod,
        "chips": own.chips.bit_count(),
        "svg": pod_picture(
            pod.pod_id, pod.shape, [Part("held", "", held & ~own.chips), Part("own", node.node_id, own.chips)]
        ),
    }


def _actions(row: NodeRow, caller: Principal, project: str) -> list[tuple[str, str, bool]]:
    """(verb, label, whether it destroys) of what the node's state and the caller's roles allow; the use case decides
    once more."""
    node = row.node
    refused = set()
    if not row.kind.is_single_host:
        refused.add("stop")
    if node.spec.usage_class not in INTERRUPTIBLE:
        refused.add("preempt")
    found = []
    for verb in ("start", "stop", "preempt", "delete"):
        permission = "podyard.nodes.preempt" if verb == "preempt" else f"tpu.nodes.{verb}"
        if verb not in refused and NODE.allows(node.state, verb) and caller.may(permission, project):
            found.append((verb, verb.capitalize(), verb in ("delete", "preempt")))
    return found


def _choose(choice: forms.NodeChoice) -> dict[str, str]:
    return {
        "accelerator_type": choice.accelerator_type,
        "usage": choice.usage,
        "runtime_version": choice.runtime_version,
    }
