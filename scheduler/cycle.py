"""One scheduling cycle: a snapshot in, a plan out. The whole algorithm is `decide`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code
from podyard.base.ids import error_id
from podyard.base.rng import Streams
from podyard.domain.fleet import FleetSnapshot, PlacementRequest
from podyard.domain.plan import Action, Place, PlaceGroup, Plan, Preempt, Wait, WaitGroup
from podyard.domain.slice import SliceRecord
from podyard.scheduler import preemption
from podyard.scheduler.holds import (
    HOLD_AFTER_SECONDS,
    Hold,
    Unfit,
    certain_end,
    earliest,
    fit,
    least_taken,
    union,
)
from podyard.scheduler.placement import ChipBox, largest_free_box
from podyard.scheduler.queue import NodeGroup, Pool, Queue, key_of, pods_for, pool_of
from podyard.scheduler.room import Room

# Node groups for which one cycle preempts: a search among the thousand slices of a full pod takes 5
# to 10 ms, and the cycle must stay well below the lease of the leader, 3 s. The other requests have
# their turn in the next cycle.
PREEMPTING_MAX = 50


def decide(snapshot: FleetSnapshot, now: PlatformTime, rng: Streams) -> Plan:
    """Decides every waiting request. Equal snapshots give equal plans, whatever the order of their
    rows.

    1. Free chips = chips of each pod that no slice holds and that are not broken. Room of a
      reservation = its size less what nodes under it hold.
    2. Node groups in the order of `queue.Queue`. A group is one node, or all nodes of a queued
      resource or of a job.
    3. A group whose time has not come waits, and so does one that a fault rule denies chips.
    4. Each request of a group gets a free box (placement.find_box) that no hold bars it from. Its
      chips are taken at once, so that no two placements overlap. A reserved request also needs a
      reservation with room. A group is placed when all of its requests are; otherwise nothing is
      taken.
    5. What finds no room may preempt (`preemption.may_take`): the cheapest slices get notice, and
      the boxes are held for it until they are gone. What fits once slices under notice are gone
      preempts no more.
    6. Otherwise it waits and says why. The first such group of each pool gets a hold (`holds`),
      which the later ones keep off unless they end before it begins. A plain node cannot wait: for
      it that is a stockout.
    """
    del rng  # part of the contract of a deciding function; nothing here needs chance
    return Cycle(snapshot, now).plan()


def order(snapshot: FleetSnapshot, now: PlatformTime) -> list[NodeGroup]:
    """The groups, those of one pool in the order in which `decide` comes to them."""
    queue = Queue(snapshot)
    if queue.is_fixed:
        return list(queue.in_order())
    cycle = Cycle(snapshot, now, explain=False)
    cycle.plan()
    return cycle.decided


class Cycle:
    """The course of one cycle. `explain` False leaves out what reasons cost to find."""

    def __init__(self, snapshot: FleetSnapshot, now: PlatformTime, explain: bool = True) -> None:
        self._snapshot = snapshot
        self._fleet = snapshot.fleet
        self._now = now
        self._explain = explain
        self._queue = Queue(snapshot)
        self._room = Room(snapshot, now)
        self.decided: list[NodeGroup] = []
        self._holds: list[Hold] = []
        self._headed: set[Pool] = set()  # pools whose head is known
        # of equal masks only once: it is the costly part of a reason
        self._largest: dict[tuple[object, ...], str] = {}
        self._searches = 0  # that have found victims
        self._hopeless: set[tuple[object, ...]] = set()  # for which preemption has found nothing

    def plan(self) -> Plan:
        decided = ((group, self._answer(group)) for group in self._queue.in_order())
        return Plan(
            tuple(
                one
                for group, actions in decided
                for action in actions
                for one in _to_each(group, action)
            )
        )

    def _answer(self, group: NodeGroup) -> list[Action]:
        self.decided.append(group)
        first = group[0]
        if first.not_before is not None and first.not_before > self._now:
            return [
                _wait(first, f"scheduled to start at {first.not_before.rfc3339()}", stockout=False)
            ]
        if (denied := next((request for request in group if request.fault), None)) is not None:
            return [_deny(denied)]
        rights = self._room.reservations_for(group)
        if isinstance(rights, PlacementRequest):
            return [_no_reservation(rights, first)]
        until = certain_end(group, self._now, self._fleet.timings)
        allowed = self._room.usable_chips(self._holds, until)
        free = self._room.free_of(allowed)
        boxes = fit(self._fleet, group, free)
        if not isinstance(boxes, Unfit):
            self._room.take(group, boxes, rights, until)
            self._queue.took(group)
            return _place(group, boxes, rights)
        return self._make_room(group) or [self._waits(group, until)]

    def _make_room(self, group: NodeGroup) -> list[Action]:
        """Preempts for the group, or keeps what is under notice for it; nothing when neither gives
        it room."""
        if not preemption.may_preempt(group[0]):
            return []
        allowed = self._room.usable_chips(self._holds)
        pods = [pod.pod_id for request in group for pod in pods_for(self._fleet, request)]
        soon = self._room.free_of(allowed)
        for pod in pods:
            soon[pod] |= self._room.under_notice(pod) & allowed[pod]
        boxes = fit(self._fleet, group, soon)
        victims: list[SliceRecord] = []
        if isinstance(boxes, Unfit):
            case = (
                preemption.case_of(group),
                *(soon[pod] for pod in pods),
                *(allowed[pod] for pod in pods),
            )
            if case in self._hopeless:
                return []
            if self._searches == PREEMPTING_MAX:
                return [
                    _wait(
                        group[0],
                        f"others preempt before it: {PREEMPTING_MAX} in one cycle",
                        stockout=False,
                    )
                ]
            found = preemption.cheapest(
                self._fleet, group, soon, allowed, self._room.placed, self._now
            )
            if found is None:
                self._hopeless.add(case)
                return []
            self._searches += 1
            boxes, victims = found
        notice = self._now.plus_seconds(self._fleet.timings.preemption_notice_seconds)
        self._room.give_notice(victims, notice)
        chips = union(boxes)
        going = [
            item
            for item in self._room.slices_under_notice
            if item.chips & chips.get(item.pod_id, 0)
        ]
        if not going:
            # the boxes of a group are found one by one, so that more chips may hold fewer groups
            return []
        gone = max(item.reclaim for item in going if item.reclaim is not None)
        self._holds.append(Hold(key_of(group), gone, chips))
        kind = group[0].accelerator_type.name
        text = (
            f"{kind} waits for {preemption.victims_text(going)}; they are gone from "
            f"{gone.rfc3339()}"
        )
        why = f"its chips are needed for {_article(group[0])} request"
        preempts = [Preempt(item.node_key, item.node_version, why) for item in victims]
        return [*preempts, _wait(group[0], text, stockout=False)]

    def _waits(self, group: NodeGroup, until: PlatformTime | None) -> Wait | WaitGroup:
        first = group[0]
        pods = {pod.pod_id for request in group for pod in pods_for(self._fleet, request)}
        bars = [
            hold for hold in self._holds if hold.bars(until) and not pods.isdisjoint(hold.chips)
        ]
        kept = self._hold_for(group) if first.queued else None
        message = stockout_message(first.zone, first.node_key)
        if not self._explain:
            return _wait(first, "", stockout=not first.queued, message=message)
        without_holds = fit(self._fleet, group, self._room.free_of(self._room.usable_chips()))
        if isinstance(without_holds, Unfit):
            text = self._no_box(without_holds)
        else:
            text = (
                f"{first.accelerator_type.name} would fit, but chips that it needs are "
                f"{bars[0].text}"
            )
        if kept is not None:
            count = sum(chips.bit_count() for chips in kept.chips.values())
            since = (
                "as they come free" if kept.starts is None else f"from {kept.starts.rfc3339()} on"
            )
            text = (
                f"{text}; {'1 chip is' if count == 1 else f'{count} chips are'} held for it {since}"
            )
        return _wait(first, text, stockout=not first.queued, message=message)

    def _hold_for(self, group: NodeGroup) -> Hold | None:
        """Makes the group the head of its pools if they have none, and gives it its hold if it can
        have one."""
        allowed = self._room.usable_chips(self._holds)
        pools = {pool_of(request) for request in group}
        if not pools.isdisjoint(self._headed) or isinstance(
            fit(self._fleet, group, allowed), Unfit
        ):
            # others come before it, or no pod could ever hold it: that must not stop the others
            return None
        self._headed |= pools
        what = (
            self._fleet,
            key_of(group),
            group,
            self._room.free_of(allowed),
            allowed,
            self._room.slices,
        )
        hold = earliest(*what)
        if hold is None and self._now >= group[0].created.plus_seconds(HOLD_AFTER_SECONDS):
            hold = least_taken(*what)
        if hold is not None:
            self._holds.append(hold)
        return hold

    def _no_box(self, unfit: Unfit) -> str:
        request = unfit.request
        kind = request.accelerator_type
        candidates = pods_for(self._fleet, request)
        if not candidates:
            return f"zone {request.zone} has no pod of {kind.generation.name}"
        masks = [unfit.free[pod.pod_id] for pod in candidates]
        key = (request.zone, kind.generation.name, *masks)
        if key not in self._largest:
            largest = largest_free_box(candidates, masks)
            box = (
                f"the largest free box is {largest.topology.text} ({largest.name})"
                if largest
                else "no box is free"
            )
            self._largest[key] = box
        chips = sum(mask.bit_count() for mask in masks)
        total = sum(pod.chip_count for pod in candidates)
        return (
            f"{kind.name} needs a free box of {kind.topology.text} chips in one pod of "
            f"{request.zone}: "
            f"{self._largest[key]}; {chips} of {total} {kind.generation.name} chips are free"
        )


def _place(
    group: NodeGroup, boxes: Sequence[ChipBox], rights: Sequence[str | None]
) -> list[Action]:
    places = tuple(
        Place(
            request.node_key, request.version, box.pod_id, box.origin, box.shape, box.chips, right
        )
        for request, box, right in zip(group, boxes, rights, strict=True)
    )
    first = group[0]
    return [PlaceGroup(first.group, first.version, places)] if first.group else list(places)


def _to_each(group: NodeGroup, action: Action) -> list[Action]:
    """The action; of a wait, one for each node of the group that is there. A fault strikes the one
    that it denies."""
    if not isinstance(action, Wait):
        return [action]
    others = (one for one in group if one.node_key != action.node_key)
    return [
        action,
        *(
            dataclasses.replace(action, node_key=one.node_key, version=one.version, fault="")
            for one in others
        ),
    ]


def _wait(
    request: PlacementRequest, reason: str, *, stockout: bool, message: str = ""
) -> Wait | WaitGroup:
    if request.group:
        return WaitGroup(request.group, request.version, reason)
    return Wait(request.node_key, request.version, reason, stockout, message=message)


def _deny(request: PlacementRequest) -> Wait | WaitGroup:
    """A stockout that a fault rule makes."""
    text = f"fault {request.fault}: stockout of {request.accelerator_type.name} in {request.zone}"
    message = stockout_message(request.zone, request.node_key)
    wait = _wait(request, text, stockout=not request.queued, message=message)
    return dataclasses.replace(wait, fault=request.fault) if isinstance(wait, Wait) else wait


def _no_reservation(request: PlacementRequest, first: PlacementRequest) -> Wait | WaitGroup:
    text = (
        f"{request.accelerator_type.name} was asked for as reserved, and no active reservation of "
        f"{request.accelerator_type.generation.name} in {request.zone} that it may use "
        "has room for it"
    )
    wait = _wait(
        first, text, stockout=not first.queued, message=reservation_message(request.node_key)
    )
    return (
        dataclasses.replace(wait, code=Code.FAILED_PRECONDITION) if isinstance(wait, Wait) else wait
    )


def _article(request: PlacementRequest) -> str:
    """Of a victim's reason: it says nothing of whose request it is."""
    return {"on-demand": "an on-demand", "reserved": "a reserved"}.get(
        request.usage_class, "a more urgent"
    )


def stockout_message(zone: str, key: str) -> str:
    """Google's text (skypilot cloud_vm_ray_backend.py; magic-modules PR#7297). `key` makes the
    error id: same key,
    same id."""
    return (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud '
        "TPU Nodes are "
        f"offered (see https://cloud.google.com/tpu/docs/regions) {error_id('stockout', zone, key)}"
    )


def reservation_message(key: str) -> str:
    """Google's text (skypilot#4579)."""
    return (
        "Insufficient reserved capacity. Contact customer support to increase your reservation. "
        f"{error_id('reservation', key)}"
    )
