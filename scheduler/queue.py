"""The order of requests: the node groups that wait, in the order in which one cycle decides
them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from podyard.domain.fleet import Fleet, FleetSnapshot, PlacementRequest, Pod
from podyard.domain.node import UsageClass

NodeGroup = tuple[PlacementRequest, ...]
Pool = tuple[str, str]  # (zone, generation): the pods whose chips are each other's substitutes
WEIGHT_DEFAULT = 1.0  # of a project that the fleet file does not name

# What is paid for without being interruptible goes first; a reservation is capacity that is paid
# for already.
CLASS_RANK: Mapping[UsageClass, int] = {
    UsageClass.RESERVED: 0,
    UsageClass.ON_DEMAND: 1,
    UsageClass.PREEMPTIBLE: 2,
    UsageClass.SPOT: 2,
}


class Queue:
    """The criteria, each one only where those before it are equal; the last one is unique, so the
    order is total.

    1. usage class: reserved, on-demand, then preemptible and spot
    2. higher priority
    3. fair share: the project that holds the fewest chips of the pool for its weight; what this
      cycle has placed counts at once, so that two projects that wait with many requests take turns
    4. earlier creation
    5. key of the queued resource, job or node

    The third criterion moves while the cycle runs, so the order is drawn one group at a time
    (`in_order`). Chips only become more in a cycle, and only those of the lane that was drawn from:
    a heap of lanes stays right.
    """

    def __init__(self, snapshot: FleetSnapshot) -> None:
        self._weights = snapshot.shares
        self._chips = chips_held(snapshot)
        # A lane is what one project wants of one pool with one priority: within it the share cannot
        # decide.
        self._levels: dict[tuple[int, int], dict[tuple[str, Pool], deque[NodeGroup]]] = {}
        for group in sorted(
            node_groups(snapshot.waiting), key=lambda group: (group[0].created, key_of(group))
        ):
            lanes = self._levels.setdefault(level_of(group), {})
            lanes.setdefault((group[0].project, pool_of(group[0])), deque()).append(group)

    @property
    def is_fixed(self) -> bool:
        """Return whether nothing that a cycle places changes the order within a pool: no two
        projects of one level want the same one."""
        lanes = [(level, pool) for level, of_level in self._levels.items() for _, pool in of_level]
        return len(lanes) == len(set(lanes))

    def in_order(self) -> Iterator[NodeGroup]:
        for level in sorted(self._levels):
            lanes = self._levels[level]
            heads = [self._standing(lane, waiting) for lane, waiting in lanes.items()]
            heapq.heapify(heads)
            while heads:
                lane = heapq.heappop(heads)[-1]
                yield lanes[lane].popleft()
                if lanes[lane]:
                    heapq.heappush(heads, self._standing(lane, lanes[lane]))

    def took(self, group: NodeGroup) -> None:
        """The group has been placed: its chips count for its project from now on."""
        for request in group:
            lane = (request.project, pool_of(request))
            self._chips[lane] = self._chips.get(lane, 0) + request.accelerator_type.chip_count

    def _standing(
        self, lane: tuple[str, Pool], waiting: deque[NodeGroup]
    ) -> tuple[float, int, str, tuple[str, Pool]]:
        share = self._chips.get(lane, 0) / self._weights.get(lane[0], WEIGHT_DEFAULT)
        return (share, waiting[0][0].created.nanos, key_of(waiting[0]), lane)


def node_groups(waiting: Sequence[PlacementRequest]) -> list[NodeGroup]:
    """The requests that are placed together, each group in the order of its keys."""
    found: dict[str, list[PlacementRequest]] = {}
    for request in sorted(waiting, key=lambda request: request.node_key):
        found.setdefault(_key(request), []).append(request)
    return [tuple(requests) for requests in found.values()]


def key_of(group: NodeGroup) -> str:
    return _key(group[0])


def _key(request: PlacementRequest) -> str:
    return request.group or request.job_group or request.node_key


def level_of(group: NodeGroup) -> tuple[int, int]:
    """Class and priority of a group; the lower comes first."""
    return (CLASS_RANK[group[0].usage_class], -group[0].priority)


def pool_of(request: PlacementRequest) -> Pool:
    return (request.zone, request.accelerator_type.generation.name)


def pods_for(fleet: Fleet, request: PlacementRequest) -> tuple[Pod, ...]:
    """The pods that a request may be placed in."""
    zone = fleet.zones.get(request.zone)
    offer = None if zone is None else zone.offers.get(request.accelerator_type.generation.name)
    return () if offer is None else offer.pods


def chips_held(snapshot: FleetSnapshot) -> dict[tuple[str, Pool], int]:
    """Chips that each project holds in each pool, whatever their class."""
    pools = {pod.pod_id: (pod.zone, pod.generation.name) for pod in snapshot.fleet.pods()}
    held: dict[tuple[str, Pool], int] = {}
    for item in snapshot.slices:
        if item.pod_id in pools:
            lane = (item.project, pools[item.pod_id])
            held[lane] = held.get(lane, 0) + item.chips.bit_count()
    return held
