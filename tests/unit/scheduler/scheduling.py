"""Snapshots for tests of the scheduler, in few words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.clock import PlatformTime
from podyard.base.rng import Streams
from podyard.domain.fleet import Fleet, FleetSnapshot, PlacementRequest
from podyard.domain.fleet_file import load_fleet
from podyard.domain.node import UsageClass
from podyard.domain.plan import Place, PlaceGroup, Plan, Preempt, Wait, WaitGroup
from podyard.domain.slice import SliceRecord
from podyard.hardware import accelerator_types
from podyard.hardware.torus import box_mask, full_mask
from podyard.scheduler.cycle import decide

NOW = PlatformTime(1_800_000_000_000_000_000)
ZONE = "us-central1-a"
POD = f"{ZONE}-v2-0"
HOSTS = load_fleet(f"zones: {{{ZONE}: {{v2: {{shape: 4x4}}}}}}")  # four v2-8 or one v2-32
WIDE = load_fleet(f"zones: {{{ZONE}: {{v2: {{shape: 8x8}}}}}}")


def assert_no_overlap(slices: Sequence[SliceRecord]) -> None:
    """No chip belongs to two slices."""
    taken: dict[str, int] = {}
    for item in slices:
        held = taken.get(item.pod_id, 0)
        assert not held & item.chips, (
            f"slice {item.slice_id} overlaps another slice of pod {item.pod_id}"
        )
        taken[item.pod_id] = held | item.chips


def later(seconds: float) -> PlatformTime:
    return NOW.plus_seconds(seconds)


def request(
    key: str, kind: str = "v2-8", usage: str = "spot", **changes: object
) -> PlacementRequest:
    made = PlacementRequest(
        node_key=key,
        version=1,
        project="demo",
        zone=ZONE,
        accelerator_type=accelerator_types.parse(kind),
        usage_class=UsageClass(usage),
        priority=0,
        created=NOW,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def queued(
    key: str, kind: str = "v2-8", usage: str = "spot", **changes: object
) -> PlacementRequest:
    return request(key, kind, usage, **{"queued": True, "group": key, **changes})


def held(
    key: str,
    origin: tuple[int, ...],
    shape: tuple[int, ...] = (2, 2),
    usage: str = "spot",
    **changes: object,
) -> SliceRecord:
    pod = changes.pop("pod_shape", (4, 4))
    chips = box_mask(pod, origin, shape)  # type: ignore[arg-type]
    made = SliceRecord(f"s-{key}", key, POD, chips, "demo", UsageClass(usage), placed=NOW)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def everything(key: str, usage: str = "on-demand", **changes: object) -> SliceRecord:
    """A slice that holds the whole 4x4 pod."""
    return held(key, (0, 0), (4, 4), usage, **changes)


def snapshot(
    fleet: Fleet, waiting: Sequence[PlacementRequest], slices: Sequence[SliceRecord] = ()
) -> FleetSnapshot:
    return FleetSnapshot(fleet, slices=slices, waiting=waiting, shares=fleet.shares)


def decided(
    fleet: Fleet, *waiting: PlacementRequest, slices: Sequence[SliceRecord] = (), after: float = 0.0
) -> Plan:
    return decide(snapshot(fleet, waiting, slices), later(after), Streams(1))


def placed(plan: Plan) -> list[str]:
    """Keys of the groups that are placed, in the order of the plan."""
    return [
        action.group if isinstance(action, PlaceGroup) else action.node_key
        for action in plan.actions
        if isinstance(action, Place | PlaceGroup)
    ]


def victims(plan: Plan) -> list[str]:
    return [action.node_key for action in plan.actions if isinstance(action, Preempt)]


def reasons(plan: Plan) -> dict[str, str]:
    return {
        action.group if isinstance(action, WaitGroup) else action.node_key: action.reason
        for action in plan.actions
        if isinstance(action, Wait | WaitGroup)
    }


def free_chips(slices: Sequence[SliceRecord]) -> int:
    free = full_mask((4, 4))
    for item in slices:
        free &= ~item.chips
    return free
