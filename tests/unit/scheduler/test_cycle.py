"""One cycle, decision by decision."""

import dataclasses

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code
from podyard.base.rng import Streams
from podyard.domain.fleet import Fleet, FleetSnapshot, PlacementRequest
from podyard.domain.fleet_file import instant_fleet, load_fleet
from podyard.domain.node import UsageClass
from podyard.domain.plan import Place, PlaceGroup, Plan, Wait, WaitGroup
from podyard.domain.reservation import ReservationRoom
from podyard.domain.slice import SliceRecord
from podyard.hardware import accelerator_types
from podyard.hardware.torus import full_mask
from podyard.scheduler.cycle import decide

NOW = PlatformTime(1_800_000_000_000_000_000)
SMALL = load_fleet(
    "zones: {us-central1-a: {v2: {shape: 4x4}}, us-central2-b: {v4: {shape: 8x8x8}}}"
)


def request(key: str, kind: str, **changes: object) -> PlacementRequest:
    made = PlacementRequest(
        node_key=key,
        version=1,
        project="demo",
        zone="us-central1-a",
        accelerator_type=accelerator_types.parse(kind),
        usage_class=UsageClass.ON_DEMAND,
        priority=0,
        created=NOW,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def decided(fleet: Fleet, *waiting: PlacementRequest, **rest: object) -> Plan:
    snapshot = FleetSnapshot(fleet=fleet, waiting=waiting, **rest)  # type: ignore[arg-type]
    return decide(snapshot, NOW, Streams(1))


def test_nodes_get_boxes_that_do_not_overlap_until_nothing_is_left() -> None:
    plan = decided(SMALL, *(request(f"n{i}", "v2-8") for i in range(5)))
    assert [place.origin for place in plan.places] == [(0, 0), (2, 0), (0, 2), (2, 2)]
    assert sum(place.chips for place in plan.places) == full_mask((4, 4))
    (wait,) = plan.waits
    assert wait.node_key == "n4"
    assert wait.stockout
    assert wait.reason == (
        "v2-8 needs a free box of 2x2 chips in one pod of us-central1-a: no box is free; 0 of 16 "
        "v2 chips are free"
    )


def test_a_stockout_names_the_largest_free_box_and_carries_googles_text() -> None:
    held = SliceRecord("s", "n", "us-central1-a-v2-0", 0b11_0011)
    plan = decided(SMALL, request("big", "v2-32", version=7), slices=[held])
    (wait,) = plan.actions
    assert isinstance(wait, Wait)
    assert wait.version == 7
    assert "the largest free box is 2x2 (v2-8); 12 of 16 v2 chips are free" in wait.reason
    assert wait.code is Code.RESOURCE_EXHAUSTED
    assert wait.message.startswith(
        'There is no more capacity in the zone "us-central1-a"; you can try in another zone where '
        "Cloud TPU Nodes are "
        "offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x"
    )


def test_priority_then_age_then_key() -> None:
    older = PlatformTime(NOW.nanos - 1)
    plan = decided(
        SMALL,
        request("b", "v2-32"),
        request("a", "v2-32"),
        request("old", "v2-32", created=older),
        request("urgent", "v2-32", priority=5),
    )
    assert [action.node_key for action in plan.actions if isinstance(action, Place | Wait)] == [
        "urgent",
        "old",
        "a",
        "b",
    ]
    assert [place.node_key for place in plan.places] == ["urgent"]


def test_broken_chips_are_never_given_away() -> None:
    plan = decided(SMALL, request("n", "v2-8"), broken_chips={"us-central1-a-v2-0": 1})
    assert plan.places[0].origin == (2, 0)


def test_reserved_without_a_reservation_is_refused_in_googles_words() -> None:
    (wait,) = decided(SMALL, request("n", "v2-8", usage_class=UsageClass.RESERVED)).waits
    assert wait.message.startswith(
        "Insufficient reserved capacity. Contact customer support to increase your "
        "reservation. [EID: 0x"
    )
    assert wait.code is Code.FAILED_PRECONDITION


def test_a_zone_without_the_generation_says_so() -> None:
    (wait,) = decided(SMALL, request("n", "v3-8")).waits
    assert wait.reason == "zone us-central1-a has no pod of v3"


def test_a_slice_may_reach_around_the_end_of_the_pod() -> None:
    fleet = load_fleet("zones: {us-central1-a: {v2: {shape: 8x8}}}")
    # Rows 2 to 5 are taken: the free rows 6, 7, 0, 1 are neighbours on the torus.
    held = SliceRecord("s", "n", "us-central1-a-v2-0", ((1 << 32) - 1) << 16)
    (place,) = decided(fleet, request("n", "v2-32"), slices=[held]).places
    assert (place.origin, place.shape) == ((0, 6), (4, 4))


def test_equal_snapshots_give_equal_plans_and_one_action_per_request() -> None:
    kinds = ["v4-8", "v4-32", "v4-128", "v4-64", "v4-256", "v4-16"] * 4
    waiting = [request(f"n{i}", kind, zone="us-central2-b") for i, kind in enumerate(kinds)]
    one = decided(SMALL, *waiting)
    assert one == decided(SMALL, *reversed(waiting))
    assert len(one.actions) == len(waiting)


def test_the_largest_types_of_the_default_fleet_are_placed() -> None:
    for zone, kind in (
        ("us-central2-b", "v4-4096"),
        ("europe-west4-a", "v3-2048"),
        ("us-central1-a", "v2-512"),
        ("us-east5-a", "v5p-12288"),
        ("us-east5-b", "v5litepod-256"),
        ("us-east5-b", "v6e-256"),
    ):
        (place,) = decided(instant_fleet(), request("n", kind, zone=zone)).places
        assert place.chips.bit_count() == accelerator_types.parse(kind).chip_count


def gang(group: str, count: int, kind: str = "v2-8", **changes: object) -> list[PlacementRequest]:
    names = [f"{group}/{index:06d}" for index in range(count)]
    return [request(name, kind, group=group, version=3, queued=True, **changes) for name in names]


def test_a_gang_is_placed_as_one_in_the_order_of_its_keys() -> None:
    plan = decided(SMALL, *reversed(gang("q", 4)))
    (action,) = plan.actions
    assert isinstance(action, PlaceGroup)
    assert (action.group, action.version) == ("q", 3)
    assert [place.node_key for place in action.places] == [f"q/{index:06d}" for index in range(4)]
    assert sum(place.chips for place in plan.places) == full_mask((4, 4))


def test_a_gang_without_room_for_all_takes_nothing_from_those_behind_it() -> None:
    older = PlatformTime(NOW.nanos - 1)
    plan = decided(SMALL, request("n", "v2-8"), *gang("q", 5, created=older))
    waits, place = plan.actions
    assert isinstance(waits, WaitGroup)
    assert waits.reason.startswith(
        "v2-8 needs a free box of 2x2 chips in one pod of us-central1-a: no box is free"
    )
    assert isinstance(place, Place)
    assert place.origin == (0, 0)


def slices(job: str, count: int, **changes: object) -> list[PlacementRequest]:
    """The nodes that are made for a job."""
    return [request(f"{job}-{index}", "v2-8", job_group=job, **changes) for index in range(count)]


def test_the_slices_of_a_job_are_placed_at_once() -> None:
    plan = decided(SMALL, *slices("j", 4))
    assert [place.node_key for place in plan.actions if isinstance(place, Place)] == [
        "j-0",
        "j-1",
        "j-2",
        "j-3",
    ]
    assert sum(place.chips for place in plan.places) == full_mask((4, 4))


@pytest.mark.parametrize("is_queued", [False, True])
def test_slices_of_a_job_without_room_for_all_take_nothing(is_queued: bool) -> None:
    older = PlatformTime(NOW.nanos - 1)
    *waits, place = decided(
        SMALL, request("n", "v2-8"), *slices("j", 5, created=older, queued=is_queued)
    ).actions
    found = [(wait.node_key, wait.stockout) for wait in waits if isinstance(wait, Wait)]
    assert found == [(f"j-{index}", not is_queued) for index in range(5)]
    assert isinstance(place, Place)
    assert place.node_key == "n"


def test_a_fault_that_denies_one_slice_its_chips_denies_all() -> None:
    first, second = slices("j", 2)
    plan = decided(SMALL, first, dataclasses.replace(second, fault="f"))
    assert [(wait.node_key, wait.stockout, wait.fault) for wait in plan.waits] == [
        ("j-1", True, "f"),
        ("j-0", True, ""),
    ]
    assert not plan.places


def test_a_gang_whose_time_has_not_come_waits_until_it_has() -> None:
    (wait,) = decided(SMALL, *gang("q", 1, not_before=PlatformTime(NOW.nanos + 1))).actions
    assert isinstance(wait, WaitGroup)
    assert wait.reason.startswith("scheduled to start at 2027-01-15T08:00:00.000000001Z")
    assert decided(SMALL, *gang("q", 1, not_before=NOW)).places


def test_a_queued_node_never_stocks_out() -> None:
    held = SliceRecord("s", "n", "us-central1-a-v2-0", full_mask((4, 4)))
    plain, queued = decided(
        SMALL, request("a", "v2-8"), request("b", "v2-8", queued=True), slices=[held]
    ).waits
    assert (plain.stockout, queued.stockout) == (True, False)


def room(chips: int, name: str = "r", **changes: object) -> ReservationRoom:
    full = f"projects/demo/locations/us-central1-a/reservations/{name}"
    made = ReservationRoom(name, "demo", "us-central1-a", full, "v2", chips, None)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_reserved_requests_share_the_room_of_their_reservation() -> None:
    waiting = [request(f"n{i}", "v2-8", usage_class=UsageClass.RESERVED) for i in range(3)]
    plan = decided(SMALL, *waiting, reservations=[room(8)])
    assert [place.reservation_key for place in plan.places] == ["r", "r"]
    assert [wait.node_key for wait in plan.waits] == ["n2"]
    assert plan.waits[0].reason.endswith("in us-central1-a that it may use has room for it")


def test_a_reservation_serves_its_project_zone_generation_and_those_who_name_it() -> None:
    def placed(reservation: ReservationRoom, **changes: object) -> bool:
        asked = request("n", "v2-8", usage_class=UsageClass.RESERVED, **changes)
        return bool(decided(SMALL, asked, reservations=[reservation]).places)

    assert placed(room(4))
    assert placed(room(4), reservation_name=room(4).name)
    assert placed(room(4), reservation_name="projects/demo/locations/us-central1-a/reservations/-")
    assert not placed(room(4), reservation_name=room(4, "other").name)
    assert not placed(room(3))
    assert not placed(room(4, project="other"))
    assert not placed(room(4, zone="us-central1-b"))
    assert not placed(room(4, generation="v3"))
    assert placed(room(4, ends=NOW.plus_seconds(60)), min_duration_seconds=60.0)
    assert not placed(room(4, ends=NOW.plus_seconds(59)), min_duration_seconds=60.0)


def test_a_gang_that_finds_no_chips_gives_the_room_of_its_reservation_back() -> None:
    older = PlatformTime(NOW.nanos - 1)
    waiting = gang("q", 5, created=older, usage_class=UsageClass.RESERVED)
    plan = decided(
        SMALL,
        *waiting,
        request("n", "v2-8", usage_class=UsageClass.RESERVED),
        reservations=[room(20)],
    )
    assert [place.node_key for place in plan.places] == ["n"]
