"""One scheduling cycle: a snapshot in, a plan out. The whole algorithm is `decide`."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code
from podyard.base.ids import error_id
from podyard.base.rng import Streams
from podyard.domain.fleet import FleetSnapshot, PlacementRequest, Pod
from podyard.domain.node import UsageClass
from podyard.domain.plan import Action, Place, PlaceGroup, Plan, Wait, WaitGroup
from podyard.domain.reservation import is_named
from podyard.hardware.torus import full_mask
from podyard.scheduler.placement import find_box, largest_free_box


def decide(snapshot: FleetSnapshot, now: PlatformTime, rng: Streams) -> Plan:
    """Decides every waiting request. Equal snapshots give equal plans.

    1. Free chips = chips of each pod that no slice holds and that are not broken. Room of a reservation = its size
       less what nodes under it hold.
    2. Gangs in `queue`: priority, then age, then key. A gang is one node, or all nodes of a queued resource.
    3. A gang whose time has not come waits.
    4. Each request gets the first free box among the pods of its generation in its zone (placement.find_box), and the
       chips of the box are taken at once, so that no two placements overlap. A reserved request also needs a
       reservation with room.
    5. A gang is placed when all of its requests are; otherwise what they took is given back, and it waits and says
       why: the largest box that is free. For a plain node that is a stockout, for what is queued it is not.
    6. Nothing is preempted and nothing placed is moved: on-demand nodes keep what they have.
    """
    del rng  # part of the contract of a deciding function; first fit needs no chance
    room = Room(snapshot, now)
    actions: list[Action] = []
    for gang in queue(snapshot.waiting):
        first = gang[0]
        if first.not_before is not None and first.not_before > now:
            actions.append(_wait(first, Wait(first.node_key, first.version, _too_early(first.not_before), False)))
            continue
        placed = room.place_all(gang)
        if isinstance(placed, Wait):
            actions.append(_wait(first, placed))
        elif first.group:
            actions.append(PlaceGroup(first.group, first.version, tuple(placed)))
        else:
            actions.extend(placed)
    return Plan(tuple(actions))


def queue(waiting: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    """The gangs in the order in which they are decided; the requests of one gang in the order of their keys."""
    gangs: dict[str, list[PlacementRequest]] = {}
    for request in sorted(waiting, key=queue_order):
        gangs.setdefault(request.group or request.node_key, []).append(request)
    return list(gangs.values())


def queue_order(request: PlacementRequest) -> tuple[int, int, str]:
    """The criteria of the queue; the last one is unique, so the order is total.

    1. higher priority  2. earlier creation  3. node key
    """
    return (-request.priority, request.created.nanos, request.node_key)


class Room:
    """What is left to give away in one cycle: free chips of each pod, and chips of each reservation."""

    def __init__(self, snapshot: FleetSnapshot, now: PlatformTime) -> None:
        self._snapshot = snapshot
        self._now = now
        pods = snapshot.fleet.pods()
        self._free = {pod.pod_id: full_mask(pod.shape) & ~snapshot.broken_chips.get(pod.pod_id, 0) for pod in pods}
        for item in snapshot.slices:
            # A slice in a pod that the fleet file no longer has keeps its chips, but they are nobody's to give.
            if item.pod_id in self._free:
                self._free[item.pod_id] &= ~item.chips
        self._reserved = {item.reservation_key: item.chips for item in snapshot.reservations}

    def place_all(self, gang: Sequence[PlacementRequest]) -> list[Place] | Wait:
        """Places for the whole gang, or why the first request without one waits; then nothing is taken."""
        free, reserved = dict(self._free), dict(self._reserved)
        places: list[Place] = []
        for request in gang:
            placed = self._place(request)
            if isinstance(placed, Wait):
                self._free, self._reserved = free, reserved
                return placed
            places.append(placed)
        return places

    def _place(self, request: PlacementRequest) -> Place | Wait:
        reservation: str | None = None
        if request.usage_class is UsageClass.RESERVED:
            reservation = self._reservation(request)
            if reservation is None:
                return _no_reservation(request)
        candidates = _candidates(self._snapshot, request)
        box = find_box(candidates, [self._free[pod.pod_id] for pod in candidates], request.accelerator_type)
        if box is None:
            return _stockout(request, candidates, self._free)
        self._free[box.pod_id] &= ~box.chips
        if reservation is not None:
            self._reserved[reservation] -= request.accelerator_type.chip_count
        return Place(request.node_key, request.version, box.pod_id, box.origin, box.shape, box.chips, reservation)

    def _reservation(self, request: PlacementRequest) -> str | None:
        """The first reservation that the request may use, and that has room for it and lasts long enough."""
        needed = request.accelerator_type
        until = self._now.plus_seconds(request.min_duration_seconds or 0.0)
        for item in self._snapshot.reservations:
            if (
                (item.project, item.zone) == (request.project, request.zone)
                and item.generation == needed.generation.name
                and is_named(request.reservation_name, item.name)
                and self._reserved[item.reservation_key] >= needed.chip_count
                and (item.ends is None or item.ends >= until)
            ):
                return item.reservation_key
        return None


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
        stockout=not request.queued,
        code=Code.RESOURCE_EXHAUSTED,
        message=stockout_message(request.zone, request.node_key),
    )


def _no_reservation(request: PlacementRequest) -> Wait:
    return Wait(
        node_key=request.node_key,
        version=request.version,
        reason=(
            f"{request.accelerator_type.name} was asked for as reserved, and no active reservation of "
            f"{request.accelerator_type.generation.name} in {request.zone} that it may use has room for it"
        ),
        stockout=not request.queued,
        code=Code.FAILED_PRECONDITION,
        message=reservation_message(request.node_key),
    )


def _wait(request: PlacementRequest, wait: Wait) -> Wait | WaitGroup:
    return WaitGroup(request.group, request.version, wait.reason) if request.group else wait


def _too_early(not_before: PlatformTime) -> str:
    return f"it shall not be placed before {not_before.rfc3339()}"


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
