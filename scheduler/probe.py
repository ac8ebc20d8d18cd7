"""The question whether a node that nobody has asked for yet would find room: the real cycle, with
requests for it at its end."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime
from podyard.domain.fleet import FleetSnapshot, PlacementRequest
from podyard.domain.plan import Place
from podyard.scheduler.cycle import Cycle
from podyard.scheduler.holds import Unfit, fit
from podyard.scheduler.predict import predict as predict_starts
from podyard.scheduler.queue import NodeGroup, pods_for, pool_of
from podyard.scheduler.room import Room

NODES_COUNTED_MAX = 8  # a reader wants to know whether there is room for one, or for a few
# moments that are played forward: a tenth of a second in a pool of 2,000 slices
ENDS_PLAYED_MAX = 30


@dataclasses.dataclass(frozen=True, slots=True)
class ProbedRoom:
    """Room for nodes of one type in one zone. `nodes`: how many would be placed now, at most
    `NODES_COUNTED_MAX`.

    Where it is 0, `reason` is the scheduler's, and `starts` is the predicted start of a request
    that queues; None: nobody can tell. `free_chips` of `chips`: in the pods of the zone that hold
    this generation.
    """

    nodes: int
    free_chips: int
    chips: int
    reason: str
    starts: PlatformTime | None


def probe(
    snapshot: FleetSnapshot,
    request: PlacementRequest,
    now: PlatformTime,
    *,
    explain: bool = True,
    predict: bool = True,
) -> ProbedRoom:
    """`request`: the node as it would be asked for now. It changes nothing. `explain` and `predict`
    False leave out reason and start, which cost the most."""
    pods = pods_for(snapshot.fleet, request)
    names = {pod.pod_id for pod in pods}
    pool = dataclasses.replace(
        snapshot,
        slices=[item for item in snapshot.slices if item.pod_id in names],
        waiting=[other for other in snapshot.waiting if pool_of(other) == pool_of(request)],
    )
    room = Room(pool, now)
    free = room.free_of(room.usable_chips())
    chips, free_chips = (
        sum(pod.chip_count for pod in pods),
        sum(free[pod].bit_count() for pod in names),
    )
    nodes = _nodes(pool, request, now) if free_chips >= request.accelerator_type.chip_count else 0
    if nodes or not explain:
        return ProbedRoom(nodes, free_chips, chips, "", None)
    with_one = dataclasses.replace(pool, waiting=[*pool.waiting, request])
    waits = (one for one in Cycle(with_one, now).plan().waits if one.node_key == request.node_key)
    reason = next((wait.reason for wait in waits), "")
    return ProbedRoom(0, free_chips, chips, reason, _start(pool, request, now) if predict else None)


def _nodes(pool: FleetSnapshot, request: PlacementRequest, now: PlatformTime) -> int:
    copies = [
        dataclasses.replace(request, node_key=f"{request.node_key}/{n}")
        for n in range(NODES_COUNTED_MAX)
    ]
    several = Cycle(
        dataclasses.replace(pool, waiting=[*pool.waiting, *copies]), now, explain=False
    ).plan()
    keys = {copy.node_key for copy in copies}
    return sum(isinstance(action, Place) and action.node_key in keys for action in several.actions)


class EmptyPods:
    """The pods as they would be if nothing held chips but what is broken. Groups that ask for the
    same are looked at once."""

    def __init__(self, snapshot: FleetSnapshot, now: PlatformTime) -> None:
        self._fleet = snapshot.fleet
        self._usable = Room(snapshot, now).usable_chips()
        self._known: dict[tuple[tuple[str | None, ...], ...], bool] = {}

    def can_hold(self, group: NodeGroup) -> bool:
        asked = tuple(
            (
                request.zone,
                request.accelerator_type.name,
                request.accelerator_type.topology.text,
                request.last_pod,
            )
            for request in group
        )
        if asked not in self._known:
            self._known[asked] = not isinstance(fit(self._fleet, group, self._usable), Unfit)
        return self._known[asked]


def _start(
    pool: FleetSnapshot, request: PlacementRequest, now: PlatformTime
) -> PlatformTime | None:
    queued = dataclasses.replace(request, queued=True)
    waiting = dataclasses.replace(pool, waiting=[*pool.waiting, queued])
    return predict_starts(waiting, now, {pool_of(request)}, ENDS_PLAYED_MAX).get(request.node_key)
