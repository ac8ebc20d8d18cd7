"""Maps of pods: how full they are, whose slices hold them, and what would have to move for a larger
one. Reads only.

Other projects share the fleet: of their slices the chips are said, not the names.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid_field, not_found
from podyard.control.access import identity
from podyard.db.compute import slices
from podyard.db.platform import faults as fault_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, Pod
from podyard.domain.principal import Principal
from podyard.domain.slice import SliceOfNode
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.torus import full_mask
from podyard.scheduler.defragment import SliceMove, advice
from podyard.scheduler.placement import fragmentation, largest_free_box


@dataclasses.dataclass(frozen=True, slots=True)
class SliceView:
    """`node`: the full name of its node, and `created_by`: who asked for it; empty for another
    project's. `chips`: bit set of the pod's chips."""

    slice_id: str
    node: str
    created_by: str
    kind: AcceleratorType
    usage_class: str
    chips: int
    placed: PlatformTime
    reclaim: PlatformTime | None


@dataclasses.dataclass(frozen=True, slots=True)
class PodView:
    """Bit sets of chips. `fragmentation`: 0 to 1, podyard.scheduler.placement; `largest`: the type
    that fits now."""

    pod: Pod
    held: int
    broken: int
    fragmentation: float
    largest: AcceleratorType | None
    slices: Sequence[SliceView]

    @property
    def free(self) -> int:
        return full_mask(self.pod.shape) & ~self.held & ~self.broken


@dataclasses.dataclass(frozen=True, slots=True)
class PodUse:
    """Chips of one pod: those of the project, those of all projects, all that there are, and broken
    ones."""

    pod_id: str
    generation: str
    own: int
    held: int
    chips: int
    broken: int


@dataclasses.dataclass(frozen=True, slots=True)
class Moving:
    """One slice that would have to move; `node` as in `SliceView`."""

    node: str
    kind: AcceleratorType
    move: SliceMove


def all_pods(uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str) -> list[PodView]:
    _require(uow, principal, project)
    by_pod: dict[str, list[SliceOfNode]] = {}
    for item in slices.with_nodes(uow):
        by_pod.setdefault(item.pod_id, []).append(item)
    broken = fault_rows.broken_chips_by_pod(uow)
    return [
        _view(pod, by_pod.get(pod.pod_id, ()), broken.get(pod.pod_id, 0), project)
        for pod in fleet.pods()
    ]


def chips_in_use(uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str) -> list[PodUse]:
    """Of every pod; `all_pods` is more, and costs more."""
    _require(uow, principal, project)
    own, held = Counter[str](), Counter[str]()
    for item in slices.held(uow):
        held[item.pod_id] += item.chips.bit_count()
        own[item.pod_id] += item.chips.bit_count() if item.project == project else 0
    broken = fault_rows.broken_chips_by_pod(uow)
    return [
        PodUse(
            pod.pod_id,
            str(pod.generation.name),
            own[pod.pod_id],
            held[pod.pod_id],
            pod.chip_count,
            broken.get(pod.pod_id, 0).bit_count(),
        )
        for pod in fleet.pods()
    ]


def get(uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, pod_id: str) -> PodView:
    """Raises NOT_FOUND for a pod that the fleet does not have."""
    return past(uow, fleet, principal, project, pod_id, 0.0)[0]


def past(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    pod_id: str,
    ago_seconds: float,
) -> tuple[PodView, PlatformTime]:
    """(the pod as it was, when). Its broken chips are those of today."""
    _require(uow, principal, project)
    pod, at = _pod(fleet, project, pod_id), uow.now.plus_seconds(-ago_seconds)
    then = [item for item in slices.with_nodes(uow, pod_id) if item.placed <= at]
    then += slices.past_with_nodes(uow, pod_id, at)
    return _view(pod, then, fault_rows.broken_chips_by_pod(uow).get(pod_id, 0), project), at


def defragment(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    pod_id: str,
    wanted: AcceleratorType,
) -> list[Moving] | None:
    """Return what would have to move within the pod, and in which order, so that `wanted` fits:
    empty when it fits now, None when no way was found. It is advice: nothing that is placed moves
    by itself."""
    view = get(uow, fleet, principal, project, pod_id)
    pod = view.pod
    if wanted.generation != pod.generation:
        raise invalid_field(
            f"pod {pod_id} has {pod.generation.name} chips: {wanted.name} does not fit",
            "accelerator_type",
        )
    held = [(item.slice_id, pod_id, item.chips, item.kind) for item in view.slices]
    moves = advice([pod], held, [view.free], wanted)
    if moves is None:
        return None
    by_id = {item.slice_id: item for item in view.slices}
    return [Moving(by_id[move.slice_id].node, by_id[move.slice_id].kind, move) for move in moves]


def _require(uow: UnitOfWork, principal: Principal, project: str) -> None:
    principal.require("podyard.pods.get", project, f"projects/{project}/pods")
    identity.project_row(uow, project)


def _pod(fleet: Fleet, project: str, pod_id: str) -> Pod:
    found = next((pod for pod in fleet.pods() if pod.pod_id == pod_id), None)
    if found is None:
        raise not_found(f"projects/{project}/pods/{pod_id}")
    return found


def _view(pod: Pod, found: Sequence[SliceOfNode], broken: int, project: str) -> PodView:
    held = 0
    for item in found:
        held |= item.chips
    free = [full_mask(pod.shape) & ~held & ~broken]
    views = [
        _slice(item, project) for item in sorted(found, key=lambda item: item.chips & -item.chips)
    ]
    return PodView(
        pod, held, broken, fragmentation([pod], free), largest_free_box([pod], free), views
    )


def _slice(item: SliceOfNode, project: str) -> SliceView:
    shown, creator = (item.node, item.created_by) if item.project == project else ("", "")
    usage_class = str(item.usage_class)
    return SliceView(
        item.slice_id, shown, creator, item.kind, usage_class, item.chips, item.placed, item.reclaim
    )
