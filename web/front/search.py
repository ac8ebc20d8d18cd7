"""Search over nodes, instances, jobs, pages and documents of a project."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from podyard.base.errors import invalid
from podyard.control.access import identity
from podyard.control.compute import node_list
from podyard.control.compute.instances import views
from podyard.control.jobs import job_list
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.instances.instance import Instance
from podyard.domain.listing import ListQuery
from podyard.domain.principal import Principal
from podyard.http import context
from podyard.web.front.docs import Document, documents
from podyard.web.kit.lists import TEXT_CHARACTERS_MAX
from podyard.web.kit.places import resource_url
from podyard.web.kit.render import NOT_KEPT, ConsoleRoute, fragment, page, project_url

HITS_MAX = 8  # of one kind: what fits on a screen without scrolling
TITLE_WEIGHT = 1_000  # a word in a title counts more than any number of times in the text

# (path below the project, what it is called, other words for it, the permission that it needs on
# the platform)
_PAGES = (
    ("overview", "Overview", "start today alerts", ""),
    ("nodes", "Nodes", "tpu vm list", ""),
    ("create", "Create a node", "new tpu vm zone price room wait quota accelerator type", ""),
    ("nodes?idle=1", "Idle nodes", "unused ready without job", ""),
    ("nodes?sort=-price", "Nodes by price", "dearest expensive cost", ""),
    ("instances", "Instances", "compute engine vm gce list", ""),
    ("instances/new", "Create an instance", "new compute engine vm machine type chips", ""),
    ("instances?sort=-price", "Instances by price", "dearest expensive cost vm", ""),
    ("instance-groups", "Managed groups", "instance group mig slice template resize", ""),
    ("jobs", "Jobs", "training runs list", ""),
    ("jobs/new", "Submit a job", "new train recipe", ""),
    ("jobs/program", "Run a program", "script command upload", ""),
    (
        "connect",
        "Connect",
        "gcloud shell exports env python skypilot terraform ssh vscode token",
        "",
    ),
    ("queue", "Queue", "waiting requests positions", ""),
    ("queue/resources", "Queued resources", "queued-resource list", ""),
    ("queue/resources/new", "Create a queued resource", "new queued-resource", ""),
    ("queue/reservations", "Reservations", "reserve capacity new create", ""),
    ("billing", "Billing", "cost month spend", ""),
    ("billing/explorer", "Cost explorer", "cost by label zone type", ""),
    ("billing/invoices", "Invoices", "pdf month", ""),
    ("billing/budgets", "Budgets", "limit alert spend set", ""),
    ("billing/commitments", "Commitments and credits", "cud discount", ""),
    ("billing/prices", "Prices", "rate card sku", ""),
    ("billing/idle", "Idle cost", "unused waste", ""),
    ("pods", "Pods", "chips map torus", ""),
    ("settings/access", "Members and tokens", "access role invite credential settings", ""),
    ("settings/keys", "Keys", "api key service account credential json settings", ""),
    ("settings/webhooks", "Webhooks", "notify event hook post signature", ""),
    ("settings/project", "Project", "quota chips limit number settings", ""),
    ("settings/storage", "Storage", "bucket gs cloud create", ""),
    ("lesson", "Lesson", "inside a tpu class eight steps explain", ""),
    ("generations", "Generations", "compare chips hbm links figures sources", ""),
    ("digits", "Number formats", "bfloat16 float32 bits rounding explain", ""),
    ("device", "The device as sold", "v2-8 v3-8 tflops 420 180 explain", ""),
    ("tpu-v1", "The first TPU and the Edge TPU", "roofline bandwidth int8 v1 coral explain", ""),
    ("mxu", "Matrix unit", "explain systolic array mxu", ""),
    ("all-reduce", "All-reduce", "explain ring torus collective", ""),
    ("machines", "Machines", "agents join", "podyard.agents.list"),
    ("operator", "Operator", "clock faults inject", "podyard.clock.set"),
    ("docs", "Documentation", "docs help", ""),
)

router = APIRouter(prefix="/console/{project}/search", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class Hit:
    url: str
    title: str
    detail: str


@router.get("")
def show(request: Request, project: str, q: str = "", part: str = "") -> Response:
    """`part`: only the hits, for the dialog that asks while one types."""
    text = q.strip()
    if len(text) > TEXT_CHARACTERS_MAX:
        raise invalid(
            f"the search has {len(text)} characters: use {TEXT_CHARACTERS_MAX} at most", "q"
        )
    caller = context.principal(request)
    groups = context.read(request, lambda uow: find_all(uow, caller, project, text))
    if part:
        return HTMLResponse(fragment("search_hits.html", groups=groups, q=text), headers=NOT_KEPT)
    return page(request, "search.html", section="search", project=project, groups=groups, q=text)


def find_all(
    uow: UnitOfWork, caller: Principal, project: str, text: str
) -> list[tuple[str, Sequence[Hit]]]:
    """(kind, hits) of each kind that has any. Pages alone where there is no text."""
    identity.project_row(uow, project)
    found: list[tuple[str, Sequence[Hit]]] = []
    if text and caller.may("tpu.nodes.list", project):
        nodes = node_list.list_page(uow, caller, project, ListQuery("name", text=text)).rows[
            :HITS_MAX
        ]
        found.append(
            (
                "Nodes",
                [_resource(project, "nodes", node.zone, node.node_id, node) for node in nodes],
            )
        )
    if text and caller.may("compute.instances.list", project):
        instances = views.list_page(uow, caller, project, ListQuery("name", text=text)).rows
        found.append(("Instances", [_instance(one) for one in instances[:HITS_MAX]]))
    if text and caller.may("podyard.jobs.list", project):
        jobs = job_list.list_page(
            uow, caller, project, ListQuery("created", text=text, descending=True)
        ).rows
        found.append(
            (
                "Jobs",
                [_resource(project, "jobs", job.zone, job.job_id, job) for job in jobs[:HITS_MAX]],
            )
        )
    found.append(("Pages", _pages(caller, project, text.lower().split())))
    if text:
        found.append(("Documentation", _documents(project, text.lower().split())))
    return [(kind, hits) for kind, hits in found if hits]


def _resource(project: str, section: str, zone: str, name: str, item: Any) -> Hit:
    return Hit(
        project_url(project, section, zone, name),
        name,
        f"{item.state} · {item.accelerator_type} · {zone}",
    )


def _instance(one: Instance) -> Hit:
    row = one.row
    detail = f"{one.status} · {one.spec.machine_type} · {row.zone}"
    return Hit(resource_url(row.path), row.name, detail)


def _pages(caller: Principal, project: str, words: Sequence[str]) -> list[Hit]:
    found = []
    for path, title, others, permission in _PAGES:
        known = f"{title} {others}".lower()
        if all(word in known for word in words) and (not permission or caller.may(permission, "*")):
            found.append(Hit(f"{project_url(project)}/{path}", title, ""))
    return found[:HITS_MAX]


def _documents(project: str, words: Sequence[str]) -> list[Hit]:
    weighed = [(_weigh(document, words), document) for document in documents().values()]
    best = sorted((one for one in weighed if one[0]), key=lambda one: (-one[0], one[1].path))[
        :HITS_MAX
    ]
    return [
        Hit(project_url(project, "docs") + f"/{found.path}", found.title, found.path)
        for _, found in best
    ]


def _weigh(document: Document, words: Sequence[str]) -> int:
    """0: a word is not in it."""
    if not all(word in document.lower for word in words):
        return 0
    title = document.title.lower()
    return sum(document.lower.count(word) + TITLE_WEIGHT * (word in title) for word in words)
