"""Pods: how full they are, a map of each, and what would have to move for a larger slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.ids import letters_of
from podyard.control.compute import pods
from podyard.control.jobs import jobs
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.hardware.accelerator_types import AcceleratorType, all_types, parse
from podyard.hardware.topology import shape_text
from podyard.http import context
from podyard.web.kit.commands import Command
from podyard.web.kit.formats import count
from podyard.web.kit.places import noun_of, resource_url
from podyard.web.kit.render import ConsoleRoute, page, project_url
from podyard.web.nodes.pod_body.picture import body_picture
from podyard.web.nodes.torus import Part, colour_of, pod_picture

SLICES_SHOWN_MAX = 100  # in the table next to the map
# in the list of pods; with more, letters and colours say nothing, and cost 100 kB a pod
SLICES_TOLD_APART_MAX = 64
MINUTES_AGO_MAX = 24 * 60  # released slices are kept for longer (podyard.loop.retention)
MINUTES_STEP = 5

router = APIRouter(prefix="/console/{project}/pods", route_class=ConsoleRoute)


@router.get("")
def show_all(request: Request, project: str) -> Response:
    """Every pod with its occupancy; a picture of those that hold something."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    found = context.read(request, lambda uow: pods.all_pods(uow, fleet, caller, project))
    rows = [_row(view, project) for view in found]
    rows.sort(key=lambda row: row["picture"] is None)
    return page(request, "pods.html", section="pods", wide=True, project=project, rows=rows)


@router.get("/{pod_id}")
def show(request: Request, project: str, pod_id: str) -> Response:
    """One pod: its map, the slices on it, with `?ago=` as they were so many minutes ago, and, with
    `?type=`, what would have to move for a slice of that type."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    ago = _minutes(request.query_params.get("ago", ""))

    def body(uow: UnitOfWork) -> tuple[pods.PodView, PlatformTime, dict[str, str]]:
        view, at = pods.past(uow, fleet, caller, project, pod_id, 60.0 * ago)
        return view, at, {} if ago else jobs.running_by_node(uow, caller, project, view.pod.zone)

    view, at, running = context.read(request, body)
    parts = parts_of(view, project, running)
    asked, wanted, error, moves = request.query_params.get("type", ""), None, None, None
    if asked:
        try:
            wanted = parse(asked)
            kind = wanted
            moves = context.read(
                request, lambda uow: pods.defragment(uow, fleet, caller, project, pod_id, kind)
            )
        except PodyardError as refused:
            error, wanted = refused.message, None
    return page(
        request,
        "pod.html",
        status=200 if error is None else 400,
        section="pods",
        project=project,
        view=view,
        shape=shape_text(view.pod.shape),
        picture=pod_picture(pod_id, view.pod.shape, parts),
        body=body_picture(pod_id, view.pod.shape, parts),
        ago=ago,
        ago_max=MINUTES_AGO_MAX,
        ago_step=MINUTES_STEP,
        at=at,
        running=running,
        slices=[
            _slice(index, item, project, running)
            for index, item in enumerate(view.slices[:SLICES_SHOWN_MAX])
        ],
        left_out=max(0, len(view.slices) - SLICES_SHOWN_MAX),
        types=_types(view),
        asked=asked,
        wanted=wanted,
        error=error,
        moves=moves,
        commands=_commands(project, pod_id, asked),
    )


def _minutes(text: str) -> int:
    """Return what cannot be read is now: the address may have been written by hand."""
    return (
        min(int(text), MINUTES_AGO_MAX)
        if text.isascii() and text.isdigit() and len(text) < 6
        else 0
    )


def parts_of(
    view: pods.PodView, project: str = "", running: Mapping[str, str] | None = None
) -> list[Part]:
    """The caller's slices each in a colour and with a letter, the others in one, broken chips
    crossed. With `project` they lead to their nodes, and say which job runs there (`running`, by
    the node's name)."""
    others, found = 0, []
    for index, item in enumerate(view.slices):
        if item.node:
            name = item.node.rpartition("/")[2]
            part = Part(colour_of(index), name, item.chips, letters_of(index))
            if project:
                is_ring = view.pod.switched or item.kind.topology.shape == view.pod.shape
                part = dataclasses.replace(
                    part,
                    url=resource_url(item.node),
                    title=_tooltip(item, name, (running or {}).get(item.node, "")),
                    wraps=is_ring and any(item.kind.topology.wrap),
                )
            found.append(part)
        else:
            others |= item.chips
    other, broken = ("Another project's", "Broken: never placed on") if project else ("", "")
    return [
        Part("other", "", others, title=other),
        *found,
        Part("broken", "", view.broken, title=broken),
    ]


def _parts_together(view: pods.PodView) -> list[Part]:
    """The caller's slices as one part, and those of others."""
    own = 0
    for item in view.slices:
        own |= item.chips if item.node else 0
    others = view.held & ~own
    return [
        Part("other", "", others),
        Part("own", "this project", own),
        Part("broken", "", view.broken),
    ]


def _tooltip(item: pods.SliceView, name: str, job: str) -> str:
    """Return what a pointer over a slice says."""
    facts = [
        f"{noun_of(item.node).capitalize()} {name}",
        f"{item.kind.name}, {count(item.chips.bit_count(), 'chip')}",
    ]
    facts += [f"job {job}"] if job else []
    facts += [f"created by {item.created_by}"] if item.created_by else []
    return "\n".join(facts)


def _row(view: pods.PodView, project: str) -> dict[str, Any]:
    busy = view.held or view.broken
    parts = parts_of(view) if len(view.slices) <= SLICES_TOLD_APART_MAX else _parts_together(view)
    picture = pod_picture(view.pod.pod_id, view.pod.shape, parts) if busy else None
    url = project_url(project, "pods", view.pod.pod_id)
    return {
        "view": view,
        "pod": view.pod,
        "shape": shape_text(view.pod.shape),
        "picture": picture,
        "url": url,
    }


def _slice(
    index: int, item: pods.SliceView, project: str, running: Mapping[str, str]
) -> dict[str, Any]:
    job = running.get(item.node, "")
    return {
        "letter": letters_of(index) if item.node else "",
        "colour": colour_of(index) if item.node else "other",
        "name": item.node.rpartition("/")[2],
        "url": resource_url(item.node),
        "job_url": project_url(project, "jobs", item.node.split("/")[3], job) if job else "",
        "item": item,
    }


def _types(view: pods.PodView) -> Sequence[AcceleratorType]:
    return [
        kind for kind in all_types(view.pod.generation) if view.pod.can_hold(kind.topology.shape)
    ]


def _commands(project: str, pod_id: str, asked: str) -> list[Command]:
    found = [Command("podyard", f"podyard pods show {pod_id} --project {project}")]
    if asked:
        found.append(
            Command("podyard, what would move", f"podyard pods defragment {pod_id} {asked}")
        )
    return found
