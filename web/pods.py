"""Pods: how full they are, a map of each, and what would have to move for a larger slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.base.ids import letters_of
from podyard.control.compute import pods
from podyard.hardware.accelerator_types import AcceleratorType, all_types, parse
from podyard.hardware.topology import shape_text
from podyard.http import context
from podyard.web.commands import Command
from podyard.web.render import ConsoleRoute, page, project_url
from podyard.web.torus import Part, colour_of, pod_picture

SLICES_SHOWN_MAX = 100  # in the table next to the map

router = APIRouter(prefix="/console/{project}/pods", route_class=ConsoleRoute)


@router.get("")
def show_all(request: Request, project: str) -> Response:
    """Every pod with its occupancy; a picture of those that hold something."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    found = context.read(request, lambda uow: pods.all_pods(uow, fleet, caller, project))
    rows = [_row(view, project) for view in found]
    rows.sort(key=lambda row: row["picture"] is None)
    return page(request, "pods.html", section="pods", project=project, rows=rows)


@router.get("/{pod_id}")
def show(request: Request, project: str, pod_id: str) -> Response:
    """One pod: its map, the slices on it, and, with `?type=`, what would have to move for a slice of that type."""
    caller, fleet = context.principal(request), context.platform(request).fleet
    view = context.read(request, lambda uow: pods.get(uow, fleet, caller, project, pod_id))
    asked, wanted, error, moves = request.query_params.get("type", ""), None, None, None
    if asked:
        try:
            wanted = parse(asked)
            kind = wanted
            moves = context.read(request, lambda uow: pods.defragment(uow, fleet, caller, project, pod_id, kind))
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
        picture=pod_picture(pod_id, view.pod.shape, parts_of(view)),
        slices=[_slice(index, item, project) for index, item in enumerate(view.slices[:SLICES_SHOWN_MAX])],
        left_out=max(0, len(view.slices) - SLICES_SHOWN_MAX),
        types=_types(view),
        asked=asked,
        wanted=wanted,
        error=error,
        moves=moves,
        commands=_commands(project, pod_id, asked),
    )


def parts_of(view: pods.PodView) -> list[Part]:
    """The caller's slices each in a colour and with a letter, the others in one, broken chips crossed."""
    others, found = 0, []
    for index, item in enumerate(view.slices):
        if item.node:
            name = item.node.rpartition("/")[2]
            found.append(Part(colour_of(index), name, item.chips, letters_of(index)))
        else:
            others |= item.chips
    return [Part("other", "", others), *found, Part("broken", "", view.broken)]


def _row(view: pods.PodView, project: str) -> dict[str, Any]:
    busy = view.held or view.broken
    picture = pod_picture(view.pod.pod_id, view.pod.shape, parts_of(view)) if busy else None
    url = project_url(project, "pods", view.pod.pod_id)
    return {"view": view, "pod": view.pod, "shape": shape_text(view.pod.shape), "picture": picture, "url": url}


def _slice(index: int, item: pods.SliceView, project: str) -> dict[str, Any]:
    parts = item.node.split("/")
    return {
        "letter": letters_of(index) if item.node else "",
        "colour": colour_of(index) if item.node else "other",
        "name": parts[-1],
        "url": project_url(project, "nodes", parts[3], parts[5]) if item.node else "",
        "item": item,
    }


def _types(view: pods.PodView) -> Sequence[AcceleratorType]:
    return [kind for kind in all_types(view.pod.generation) if view.pod.can_hold(kind.topology.shape)]


def _commands(project: str, pod_id: str, asked: str) -> list[Command]:
    found = [Command("podyard", f"podyard pods show {pod_id} --project {project}")]
    if asked:
        found.append(Command("podyard, what would move", f"podyard pods defragment {pod_id} {asked}"))
    return found
