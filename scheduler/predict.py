"""When each waiting node group will start, as far as known: the real cycle, run at each known end
of a slice."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from podyard.base.clock import PlatformTime
from podyard.domain.fleet import FleetSnapshot
from podyard.domain.plan import Plan, Preempt
from podyard.domain.slice import SliceRecord
from podyard.scheduler.cycle import Cycle
from podyard.scheduler.holds import certain_end
from podyard.scheduler.preemption import may_preempt, may_take
from podyard.scheduler.queue import NodeGroup, Pool, Queue, key_of, node_groups, pool_of
from podyard.scheduler.room import Room, slice_of

# groups of a pool that are looked at, the first ones of the queue: a page of a listing
PREDICTIONS_MAX = 100
# moments that are played forward in a pool, a cycle each: half a second in a pod of 1000 slices
ENDS_MAX = 100


def predict(
    snapshot: FleetSnapshot,
    now: PlatformTime,
    pools: Collection[Pool] | None = None,
    ends_max: int = ENDS_MAX,
) -> dict[str, PlatformTime | None]:
    """Key of each waiting group -> when it starts if nothing else is asked for and no node ends
    before it must; None: nobody can tell, because slices without a known end are in the way,
    because a reservation has no room, or because the group stands too far back for the limits
    above.

    Plain nodes do not wait, so they are not predicted. A group over several pools has None.
    `pools`: only these. `ends_max`: moments that are played forward.
    """
    found: dict[str, PlatformTime | None] = {}
    by_pool: dict[Pool, list[NodeGroup]] = {}
    for group in Queue(snapshot).in_order():
        if pools is not None and pool_of(group[0]) not in pools:
            continue
        if group[0].queued:
            found[key_of(group)] = None
        if len({pool_of(request) for request in group}) == 1:
            by_pool.setdefault(pool_of(group[0]), []).append(group)
    for pool, waiting in by_pool.items():
        found |= _of_pool(snapshot, pool, waiting[:PREDICTIONS_MAX], now, ends_max)
    return found


def _of_pool(
    snapshot: FleetSnapshot, pool: Pool, waiting: list[NodeGroup], now: PlatformTime, ends_max: int
) -> dict[str, PlatformTime | None]:
    pods = {pod.pod_id for pod in snapshot.fleet.pods() if (pod.zone, pod.generation.name) == pool}
    state = dataclasses.replace(
        snapshot,
        slices=[item for item in snapshot.slices if item.pod_id in pods],
        waiting=[request for group in waiting for request in group],
    )
    if _nothing_changes(state, pods, now):
        return {}
    queued = {key_of(group) for group in waiting if group[0].queued}
    found: dict[str, PlatformTime | None] = {}
    at: PlatformTime | None = now
    for _ in range(ends_max):
        if at is None or not state.waiting:
            break
        plan = Cycle(state, at, explain=False).plan()
        placed = {place.node_key for place in plan.places}
        starting = {
            key_of(group) for group in node_groups(state.waiting) if group[0].node_key in placed
        }
        found |= dict.fromkeys(starting & queued, at)
        state = after(state, plan, at)
        if at == now:  # plain nodes that find no room do not stay
            state = dataclasses.replace(
                state, waiting=[request for request in state.waiting if request.queued]
            )
        at = _next(state, at)
        if at is not None:
            left = [item for item in state.slices if item.free_from is None or item.free_from > at]
            state = dataclasses.replace(state, slices=left)
    return found


def _nothing_changes(state: FleetSnapshot, pods: Collection[str], now: PlatformTime) -> bool:
    """A full pool whose slices have no known end, and nothing that waits may take any: no cycle has
    to be played."""
    if any(item.free_from for item in state.slices):
        return False
    # What matters to `may_take`: of a hundred requests that wait, most are alike.
    alike = {
        (one.usage_class, one.project, one.job_priority): one
        for one in state.waiting
        if may_preempt(one)
    }
    if any(may_take(request, item, now) for request in alike.values() for item in state.slices):
        return False
    room = Room(state, now)
    free = room.free_of(room.usable_chips())
    return not any(free[pod] for pod in pods)


def after(snapshot: FleetSnapshot, plan: Plan, now: PlatformTime) -> FleetSnapshot:
    """The snapshot once the plan has been applied at `now`: what is placed holds chips, victims are
    under notice."""
    groups = {
        request.node_key: (request, group)
        for group in node_groups(snapshot.waiting)
        for request in group
    }
    placed = {place.node_key for place in plan.places}
    new: list[SliceRecord] = []
    taken: dict[str | None, int] = {}
    for place in plan.places:
        request, group = groups[place.node_key]
        new.append(slice_of(request, place, now, certain_end(group, now, snapshot.fleet.timings)))
        taken[place.reservation_key] = taken.get(place.reservation_key, 0) + place.chips.bit_count()
    going = {action.node_key for action in plan.actions if isinstance(action, Preempt)}
    notice = now.plus_seconds(snapshot.fleet.timings.preemption_notice_seconds)
    stay = [
        dataclasses.replace(s, reclaim=notice) if s.node_key in going else s
        for s in snapshot.slices
    ]
    return dataclasses.replace(
        snapshot,
        slices=[*stay, *new],
        waiting=[request for request in snapshot.waiting if request.node_key not in placed],
        reservations=[
            dataclasses.replace(item, chips=item.chips - taken.get(item.reservation_key, 0))
            for item in snapshot.reservations
        ],
    )


def _next(state: FleetSnapshot, at: PlatformTime) -> PlatformTime | None:
    """The next moment at which something can change; `at` itself when something is over by now."""
    moments = [item.free_from for item in state.slices if item.free_from is not None]
    moments += [
        request.not_before
        for request in state.waiting
        if request.not_before and request.not_before > at
    ]
    return max(at, min(moments)) if moments else None
