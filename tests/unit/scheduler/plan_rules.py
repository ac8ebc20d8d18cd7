"""What no plan may break, said a second time and in another way than the scheduler says it, and
snapshots to try."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime
from podyard.base.rng import Streams
from podyard.domain.fleet import FleetSnapshot, PlacementRequest
from podyard.domain.fleet_file import load_fleet
from podyard.domain.node import UsageClass
from podyard.domain.plan import Action, Place, PlaceGroup, Plan, Preempt, Wait, WaitGroup
from podyard.domain.slice import SliceRecord
from podyard.hardware import accelerator_types
from podyard.hardware.torus import full_mask
from podyard.scheduler.holds import earliest
from podyard.scheduler.placement import find_box
from tests.unit.scheduler.scheduling import NOW, later

ZONES = ("us-central1-a", "us-central1-b")
FLEET = load_fleet(
    f"{{zones: {{{ZONES[0]}: {{v5e: {{shape: 8x4}}}}, {ZONES[1]}: {{v5e: {{shape: 4x4, "
    f"pods: 2}}}}}},"
    " shares: {p1: 2}, timings: {preemption_notice_seconds: 30, create_seconds: 5}}"
)
KINDS = ("v5litepod-1", "v5litepod-4", "v5litepod-8", "v5litepod-16")
FIRM = ("on-demand", "reserved")


def snapshot_of(seed: int) -> FleetSnapshot:
    """A fleet in use with a queue: the same seed gives the same one."""
    chance = Streams(seed).stream("snapshot")

    def usage() -> UsageClass:
        return UsageClass(chance.choice(("on-demand", "spot", "preemptible", "spot")))

    broken = {f"{ZONES[0]}-v5e-0": 0b11} if chance.random() < 0.3 else {}
    slices = []
    pods = FLEET.pods()
    free = [full_mask(pod.shape) & ~broken.get(pod.pod_id, 0) for pod in pods]
    for number in range(chance.randrange(9)):
        box = find_box(pods, free, accelerator_types.parse(chance.choice(KINDS[1:])))
        if box is None:
            continue
        position = next(index for index, pod in enumerate(pods) if pod.pod_id == box.pod_id)
        free[position] &= ~box.chips
        if chance.random() < 0.3:
            continue  # a gap
        ends = later(chance.randrange(-50, 2000)) if chance.random() < 0.6 else None
        reclaim = later(chance.randrange(30)) if chance.random() < 0.15 else None
        job = chance.randrange(3) if chance.random() < 0.3 else None
        lost = float(chance.randrange(100))
        project = f"p{chance.randrange(3)}"
        slices.append(
            SliceRecord(
                f"s{number}",
                f"n{number}",
                box.pod_id,
                box.chips,
                project,
                usage(),
                1,
                NOW,
                ends,
                reclaim,
                job,
                lost,
            )
        )
    waiting: list[PlacementRequest] = []
    for number in range(chance.randrange(1, 12)):
        size = chance.choice((1, 1, 1, 2, 3))
        queued = size > 1 or chance.random() < 0.6
        job = chance.randrange(3) if size == 1 and chance.random() < 0.2 else None
        key = f"w{chance.randrange(100):02d}-{number}"
        common = PlacementRequest(
            node_key=key,
            version=number,
            project=f"p{chance.randrange(3)}",
            zone=chance.choice(ZONES),
            accelerator_type=accelerator_types.parse(chance.choice(KINDS)),
            usage_class=usage(),
            priority=job if job is not None else chance.randrange(2),
            created=later(-chance.choice((0, 1, 5, 700))),
            queued=queued or job is not None,
            duration_seconds=float(chance.randrange(1, 2000)) if chance.random() < 0.5 else None,
            not_before=later(chance.choice((-1, 1))) if queued and chance.random() < 0.1 else None,
            job_priority=job,
        )
        group = key if queued and job is None else ""
        for index in range(size):
            name = f"{key}/{index}" if group else key
            waiting.append(dataclasses.replace(common, node_key=name, group=group))
    return FleetSnapshot(FLEET, slices, waiting, broken, shares=FLEET.shares)


def check(snapshot: FleetSnapshot, plan: Plan, now: PlatformTime = NOW) -> None:
    """Raises AssertionError, naming the rule that the plan breaks."""
    groups: dict[str, list[PlacementRequest]] = {}
    for request in snapshot.waiting:
        groups.setdefault(request.group or request.node_key, []).append(request)
    answers = [(_key(action), action) for action in plan.actions if not isinstance(action, Preempt)]
    assert sorted(key for key, _ in answers) == sorted(groups), "each group has exactly one answer"
    _check_chips(snapshot, plan, groups)
    _check_victims(snapshot, plan)
    _check_order(snapshot, [key for key, _ in answers], answers, groups)
    _check_holds(snapshot, answers, groups, now)


def _key(action: Action) -> str:
    if isinstance(action, PlaceGroup | WaitGroup):
        return action.group
    assert isinstance(action, Place | Wait)
    return action.node_key


def _places(action: Action) -> tuple[Place, ...]:
    return (
        action.places
        if isinstance(action, PlaceGroup)
        else (action,)
        if isinstance(action, Place)
        else ()
    )


def _check_chips(
    snapshot: FleetSnapshot, plan: Plan, groups: dict[str, list[PlacementRequest]]
) -> None:
    pods = {pod.pod_id: pod for pod in snapshot.fleet.pods()}
    taken = dict(snapshot.broken_chips)
    for item in snapshot.slices:
        taken[item.pod_id] = taken.get(item.pod_id, 0) | item.chips
    for action in plan.actions:
        places = _places(action)
        if not places:
            continue
        wanted = {request.node_key: request for request in groups[_key(action)]}
        assert sorted(place.node_key for place in places) == sorted(wanted), (
            "a group is placed whole"
        )
        for place in places:
            request = wanted[place.node_key]
            assert pods[place.pod_id].zone == request.zone, "a node is placed in its zone"
            assert place.chips.bit_count() == request.accelerator_type.chip_count, (
                "a slice has the chips of its type"
            )
            assert not taken.get(place.pod_id, 0) & place.chips, (
                "no chip has two owners, or is broken"
            )
            taken[place.pod_id] = taken.get(place.pod_id, 0) | place.chips
            assert request.not_before is None or request.not_before <= NOW, (
                "nothing is placed before its time"
            )


def _check_victims(snapshot: FleetSnapshot, plan: Plan) -> None:
    slices = {item.node_key: item for item in snapshot.slices}
    seen: set[str] = set()
    victims: list[Preempt] = []
    for action in plan.actions:
        if isinstance(action, Preempt):
            victims.append(action)
            continue
        asking = next(r for r in snapshot.waiting if _key(action) in (r.group, r.node_key))
        for preempt in victims:
            item = slices[preempt.node_key]
            assert preempt.node_key not in seen, "nobody is preempted twice"
            seen.add(preempt.node_key)
            assert item.reclaim is None, "what is under notice is not preempted again"
            assert item.ends is None or item.ends > NOW, "what is leaving is not preempted"
            ranks = (item.job_priority, asking.job_priority)
            below = ranks[0] is not None and ranks[1] is not None and ranks[0] < ranks[1]
            mine = below and item.project == asking.project
            spot = item.usage_class not in FIRM and asking.usage_class in FIRM
            assert mine or spot, "on-demand is not preempted, and spot not by spot"
            assert isinstance(action, Wait | WaitGroup), (
                "the requester waits until its victims are gone"
            )
            assert not (isinstance(action, Wait) and action.stockout), (
                "who has victims does not fail"
            )
        victims = []


def _check_order(
    snapshot: FleetSnapshot,
    keys: list[str],
    answers: list[tuple[str, Action]],
    groups: dict[str, list[PlacementRequest]],
) -> None:
    pods = {pod.pod_id: pod.zone for pod in snapshot.fleet.pods()}
    chips: dict[tuple[str, str], int] = {}
    for item in snapshot.slices:
        chips[item.project, pods[item.pod_id]] = (
            chips.get((item.project, pods[item.pod_id]), 0) + item.chips.bit_count()
        )

    def standing(key: str) -> tuple[object, ...]:
        first = groups[key][0]
        rank = {"reserved": 0, "on-demand": 1}.get(first.usage_class, 2)
        share = chips.get((first.project, first.zone), 0) / (2.0 if first.project == "p1" else 1.0)
        return (rank, -first.priority, share, first.created.nanos, key)

    for position, (key, action) in enumerate(answers):
        assert key == min(keys[position:], key=standing), (
            "the order of the queue: class, priority, share, age, key"
        )
        for place in _places(action):
            owner = (groups[key][0].project, groups[key][0].zone)
            chips[owner] = chips.get(owner, 0) + place.chips.bit_count()


def _check_holds(
    snapshot: FleetSnapshot,
    answers: list[tuple[str, Action]],
    groups: dict[str, list[PlacementRequest]],
    now: PlatformTime,
) -> None:
    """The first group of a pool that has to wait starts no later because of those that were placed
    after it."""
    create = snapshot.fleet.timings.create_seconds
    whole = {
        pod.pod_id: full_mask(pod.shape) & ~snapshot.broken_chips.get(pod.pod_id, 0)
        for pod in FLEET.pods()
    }
    for zone in ZONES:
        slices = list(snapshot.slices)
        head: tuple[str, PlatformTime] | None = None
        for key, action in answers:
            group = groups[key]
            if group[0].zone != zone:
                continue
            durations = [request.duration_seconds for request in group]
            longest = max(seconds or 0.0 for seconds in durations)
            ends = None if None in durations else now.plus_seconds(create + longest)
            for place in _places(action):
                new = SliceRecord(
                    place.node_key, place.node_key, place.pod_id, place.chips, placed=now, ends=ends
                )
                slices.append(new)
            waits = (
                isinstance(action, WaitGroup | Wait)
                and group[0].queued
                and "waits for" not in action.reason
            )
            if waits and head is None and "scheduled to start" not in getattr(action, "reason", ""):
                start = _start(group, slices, whole)
                if start is None or "held for it from" not in getattr(action, "reason", ""):
                    break  # its start is not known, so it cannot be kept
                head = (key, start)
        if head is not None:
            again = _start(groups[head[0]], slices, whole)
            assert again is not None and again <= head[1], (
                "backfill does not move the start of the head"
            )


def _start(
    group: list[PlacementRequest], slices: list[SliceRecord], whole: dict[str, int]
) -> PlatformTime | None:
    free = dict(whole)
    for item in slices:
        free[item.pod_id] &= ~item.chips
    ordered = tuple(sorted(group, key=lambda request: request.node_key))
    hold = earliest(FLEET, "g", ordered, free, whole, slices)
    return None if hold is None else hold.starts
