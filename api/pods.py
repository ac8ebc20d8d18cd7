"""Podyard's own REST for pods: how full they are, and what would have to move."""

from __future__ import annotations

from typing import NotRequired

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.errors import invalid
from podyard.control.compute import pods as control
from podyard.hardware.accelerator_types import parse
from podyard.hardware.topology import shape_text

router = APIRouter(prefix="/podyard/v1/projects/{project}/pods", route_class=deps.Route)


class PodAnswer(TypedDict):
    """`fragmentation`: 0 where the free chips can be given as the largest slice that so many chips
    could be, 1 where none of them can be given. `largestFreeType`: what would fit now."""

    pod: str
    location: str
    generation: str
    shape: str
    interconnect: str
    chips: int
    chipsHeld: int
    chipsBroken: int
    fragmentation: float
    largestFreeType: NotRequired[str]


class SliceAnswer(TypedDict):
    """`chips`: hexadecimal bit set; chip (x, y, z) is bit x + X * (y + Y * z). `node`: only of the
    caller's project."""

    chips: str
    acceleratorType: str
    usage: str
    placedTime: Timestamp
    reclaimTime: NotRequired[Timestamp]
    node: NotRequired[str]


class OnePod(PodAnswer):
    slices: list[SliceAnswer]
    brokenChips: str


class Pods(TypedDict):
    pods: list[PodAnswer]


class MoveAnswer(TypedDict):
    """A slice goes from its chips, the first of which is `origin`, to `toChips`, the first of which
    is `toOrigin`."""

    acceleratorType: str
    origin: list[int]
    toOrigin: list[int]
    toChips: str
    node: NotRequired[str]


class DefragmentAdvice(TypedDict):
    """`possible` False: no way was found. No moves: it fits now."""

    acceleratorType: str
    possible: bool
    moves: list[MoveAnswer]


TYPE: deps.Query = {
    "name": "acceleratorType",
    "description": "Accelerator type to make room for.",
    "schema": {"type": "string"},
    "required": True,
}


@router.get("")
def list_pods(request: Request, project: str) -> Pods:
    """Return how full the pods are. Whose nodes hold the chips is not said: other projects share
    the fleet."""
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    return {
        "pods": [
            _pod(item)
            for item in deps.read(request, lambda u: control.all_pods(u, fleet, caller, project))
        ]
    }


@router.get("/{pod}:defragment", openapi_extra=deps.asks(TYPE))
def defragment(request: Request, project: str, pod: str) -> DefragmentAdvice:
    """Return what would have to move so that a type fits. Nothing moves by itself."""
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.pods.get", project, f"projects/{project}/pods")
    name = request.query_params.get("acceleratorType", "")
    if not name:
        raise invalid("acceleratorType is required", "acceleratorType")
    wanted = parse(name)
    found = deps.read(
        request, lambda uow: control.defragment(uow, fleet, caller, project, pod, wanted)
    )
    return {
        "acceleratorType": wanted.name,
        "possible": found is not None,
        "moves": [_move(item) for item in found or ()],
    }


@router.get("/{pod}")
def get(request: Request, project: str, pod: str) -> OnePod:
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    found = deps.read(request, lambda uow: control.get(uow, fleet, caller, project, pod))
    return {
        **_pod(found),
        "slices": [_slice(item) for item in found.slices],
        "brokenChips": f"{found.broken:x}",
    }


def _pod(found: control.PodView) -> PodAnswer:
    pod = found.pod
    answer: PodAnswer = {
        "pod": pod.pod_id,
        "location": pod.zone,
        "generation": pod.generation.name,
        "shape": shape_text(pod.shape),
        "interconnect": "switch" if pod.switched else "torus",
        "chips": pod.chip_count,
        "chipsHeld": found.held.bit_count(),
        "chipsBroken": found.broken.bit_count(),
        "fragmentation": round(found.fragmentation, 6),
    }
    if found.largest is not None:
        answer["largestFreeType"] = found.largest.name
    return answer


def _slice(item: control.SliceView) -> SliceAnswer:
    answer: SliceAnswer = {
        "chips": f"{item.chips:x}",
        "acceleratorType": item.kind.name,
        "usage": item.usage_class,
        "placedTime": item.placed.rfc3339(),
    }
    if item.reclaim is not None:
        answer["reclaimTime"] = item.reclaim.rfc3339()
    if item.node:
        answer["node"] = item.node
    return answer


def _move(item: control.Moving) -> MoveAnswer:
    answer: MoveAnswer = {
        "acceleratorType": item.kind.name,
        "origin": list(item.move.origin_from),
        "toOrigin": list(item.move.to.origin),
        "toChips": f"{item.move.to.chips:x}",
    }
    if item.node:
        answer["node"] = item.node
    return answer
