"""One scheduling cycle: a snapshot in, a plan out. The whole algorithm is `decide`."""

from __future__ import annotations

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code
from podyard.base.ids import error_id
from podyard.base.rng import Streams
from podyard.domain.fleet import FleetSnapshot, PlacementRequest, Pod
from podyard.domain.node import UsageClass
from podyard.domain.plan import Action, Place, Plan, Wait
from podyard.hardware.torus import full_mask
from podyard.scheduler.placement import find_box, largest_free_box


def decide(snapshot: FleetSnapshot, now: PlatformTime, rng: Streams) -> Plan:
    """Decides every waiting request. Equal snapshots give equal plans.

    1. Free chips = chips of each pod that no slice holds and that are not broken.
    2. Requests in `queue_order`: priority, then age, then node key.
    3. A reserved request is refused: this fleet has no reservations.
    4. A request gets the first free box among the pods of its generation in its zone (placement.find_box), and the
       chips of the box are taken at once, so that no two placements overlap.
    5. A request without a box waits, as a stockout, and says why: the largest box that is free.
    6. Nothing is preempted and nothing placed is moved: on-demand nodes keep what they have.
    """
    del now, rng  # part of the contract of a deciding function; first fit needs neither
    pods = {pod.pod_id: pod for pod in snapshot.fleet.pods()}
    free = _free_chips(snapshot, pods)
    actions: list[Action] = []
    for request in sorted(snapshot.waiting, key=queue_order):
        if request.usage_class is UsageClass.RESERVED:
            actions.append(_no_reservation(request))
            continue
        candidates = _candidates(snapshot, request)
        box = find_box(candidates, [free[pod.pod_id] for pod in candidates], request.accelerator_type)
        if box is None:
            actions.append(_stockout(request, candidates, free))
            continue
        free[box.pod_id] &= ~box.chips
        actions.append(Place(request.node_key, request.version, box.pod_id, box.origin, box.shape, box.chips))
    return Plan(tuple(actions))


def queue_order(request: PlacementRequest) -> tuple[int, int, str]:
    """The criteria of the queue; the last one is unique, so the order is total.

    1. higher priority  2. earlier creation  3. node key
    """
    return (-request.priority, request.created.nanos, request.node_key)


def _free_chips(snapshot: FleetSnapshot, pods: dict[str, Pod]) -> dict[str, int]:
    free = {pod_id: full_mask(pod.shape) & ~snapshot.broken_chips.get(pod_id, 0) for pod_id, pod in pods.items()}
    for item in snapshot.slices:
        # A slice in a pod that the fleet file no longer has keeps its chips, but they are nobody's to give.
        if item.pod_id in free:
            free[item.pod_id] &= ~item.chips
    return free


def _candidates(snapshot: FleetSnapshot, request: PlacementRequest) -> tuple[Pod, ...]:
    zone = snapshot.fleet.zones.get(request.zone)
    offer = None if zone is None else zone.offers.get(request.accelerator_type.generation.name)
    return () if offer is None else offer.pods


def _stockout(request: PlacementRequest, candidates: tuple[Pod, ...], free: dict[str, int]) -> Wait:
    kind = request.accelerator_type
    masks = [free[pod.pod_id] for pod in candidates]
    if not candidates:
        why = f"zone {request.zone} has no pod of {kind.generation.name}"
    else:
        largest = largest_free_box(candidates, masks)
        chips = sum(mask.bit_count() for mask in masks)
        total = sum(pod.chip_count for pod in candidates)
        box = f"the largest free box is {largest.topology.text} ({largest.name})" if largest else "no box is free"
        why = (
            f"{kind.name} needs a free box of {kind.topology.text} chips in one pod of {request.zone}: {box}; "
            f"{chips} of {total} {kind.generation.name} chips are free"
        )
    return Wait(
        node_key=request.node_key,
        version=request.version,
        reason=why,
        stockout=True,
        code=Code.RESOURCE_EXHAUSTED,
        message=stockout_message(request.zone, request.node_key),
    )


def _no_reservation(request: PlacementRequest) -> Wait:
    return Wait(
        node_key=request.node_key,
        version=request.version,
        reason=f"{request.accelerator_type.name} was asked for as reserved, and {request.zone} has no reservation",
        stockout=True,
        code=Code.FAILED_PRECONDITION,
        message=reservation_message(request.node_key),
    )


def stockout_message(zone: str, key: str) -> str:
    """Google's text (skypilot cloud_vm_ray_backend.py; magic-modules PR#7297). `key` makes the error id: same key,
    same id."""
    return (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are '
        f"offered (see https://cloud.google.com/tpu/docs/regions) {error_id('stockout', zone, key)}"
    )


def reservation_message(key: str) -> str:
    """Google's text (skypilot#4579)."""
    return (
        "Insufficient reserved capacity. Contact customer support to increase your reservation. "
        f"{error_id('reservation', key)}"
    )
