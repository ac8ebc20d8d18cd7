"""Holds and backfill: what is kept for the head of the queue, and who may go before it."""

from podyard.domain.fleet import NodeTimings
from podyard.domain.plan import Wait, WaitGroup
from podyard.hardware.torus import box_mask, full_mask
from podyard.scheduler.holds import HOLD_AFTER_SECONDS, Hold, certain_end, earliest, least_taken
from tests.unit.scheduler.scheduling import (
    HOSTS,
    POD,
    WIDE,
    decided,
    free_chips,
    held,
    later,
    placed,
    queued,
    reasons,
    request,
)

# Rows 0 and 1 of the pod are free; rows 2 and 3 come back after 100 s and after 300 s.
BUSY = [
    held("a", (0, 2), usage="on-demand", ends=later(100)),
    held("b", (2, 2), usage="on-demand", ends=later(300)),
]
BIG = queued("big", "v2-32", created=later(-1))


def test_a_shorter_request_goes_before_the_head_and_one_that_might_stay_does_not() -> None:
    short = queued("short", duration_seconds=300.0)
    open_ended = queued("open-ended")
    too_long = queued("too-long", duration_seconds=300.5)
    plan = decided(HOSTS, BIG, open_ended, too_long, short, slices=BUSY)
    assert placed(plan) == ["short"]
    found = reasons(plan)
    assert found["big"].endswith(f"; 16 chips are held for it from {later(300).rfc3339()} on")
    for key in ("open-ended", "too-long"):
        why = f"are held for a request that comes before it from {later(300).rfc3339()}"
        assert found[key] == f"v2-8 would fit, but chips that it needs {why}"


def test_an_open_ended_request_goes_beside_the_hold() -> None:
    # One box is free, one comes back after 100 s, one after 200 s, and one never. The trio needs
    # the three.
    slices = [
        held("a", (2, 0), usage="on-demand", ends=later(100)),
        held("b", (0, 2), usage="on-demand", ends=later(200)),
        held("c", (2, 2), usage="on-demand"),
    ]
    trio = [queued(f"trio/{i}", group="trio", created=later(-1)) for i in range(3)]
    plan = decided(HOSTS, *trio, queued("late"), slices=slices)
    assert placed(plan) == []
    assert reasons(plan)["late"].endswith(
        f"held for a request that comes before it from {later(200).rfc3339()}"
    )
    # In a wider pod the head will get the left half of the lower half; a box next to it is free.
    quarters = [
        held("soon", (0, 0), (4, 4), "on-demand", ends=later(100), pod_shape=(8, 8)),
        held("right", (4, 0), (4, 4), "on-demand", pod_shape=(8, 8)),
        held("above", (0, 4), (8, 2), "on-demand", pod_shape=(8, 8)),
        held("top", (0, 6), (6, 2), "on-demand", pod_shape=(8, 8)),
    ]
    plan = decided(WIDE, BIG, queued("late"), queued("later"), slices=quarters)
    assert placed(plan) == ["late"]


def test_a_plain_node_that_needs_held_chips_is_a_stockout_that_names_the_hold() -> None:
    plan = decided(HOSTS, BIG, request("plain"), slices=BUSY)
    (wait,) = [action for action in plan.actions if isinstance(action, Wait)]
    assert wait.stockout
    assert wait.reason.endswith(
        f"held for a request that comes before it from {later(300).rfc3339()}"
    )
    assert wait.message.startswith("There is no more capacity in the zone")


def test_only_the_first_gang_without_room_has_a_hold() -> None:
    second = queued("second", "v2-32", created=later(-0.5))
    found = reasons(decided(HOSTS, BIG, second, slices=BUSY))
    assert "held for it" in found["big"]
    assert "held for it" not in found["second"]


def test_a_plain_node_is_never_the_head() -> None:
    plan = decided(
        HOSTS, request("plain", "v2-32", created=later(-1)), queued("small"), slices=BUSY
    )
    assert placed(plan) == ["small"]


def test_what_no_pod_could_hold_stops_nobody() -> None:
    never = queued("never", "v2-128", created=later(-1))
    plan = decided(HOSTS, never, queued("small"), slices=BUSY, after=HOLD_AFTER_SECONDS * 2)
    assert placed(plan) == ["small"]


def test_a_gang_whose_time_has_not_come_holds_nothing() -> None:
    plan = decided(HOSTS, queued("big", "v2-32", not_before=later(1)), queued("small"), slices=BUSY)
    assert placed(plan) == ["small"]


def test_a_head_that_nobody_can_predict_gets_what_comes_free_after_a_time() -> None:
    endless = [held("a", (0, 2), usage="on-demand")]
    assert placed(
        decided(HOSTS, BIG, queued("small"), slices=endless, after=HOLD_AFTER_SECONDS - 2)
    ) == ["small"]
    plan = decided(HOSTS, BIG, queued("small"), slices=endless, after=HOLD_AFTER_SECONDS)
    assert placed(plan) == []
    assert reasons(plan)["big"].endswith("; 16 chips are held for it as they come free")
    # Even what would end soon: nobody knows when the head will start.
    short = queued("short", duration_seconds=1.0)
    assert placed(decided(HOSTS, BIG, short, slices=endless, after=HOLD_AFTER_SECONDS)) == []


def test_the_hold_is_the_box_with_the_fewest_taken_chips() -> None:
    slices = [held("a", (0, 0), (2, 4), usage="on-demand"), held("b", (2, 0), usage="on-demand")]
    pair = tuple(queued(f"p/{i}", group="p") for i in range(2))
    free = {POD: free_chips(slices)}
    hold = least_taken(HOSTS, "p", pair, free, {POD: full_mask((4, 4))}, slices)
    assert hold is not None
    assert hold.chips[POD] == box_mask((4, 4), (2, 0), (2, 4))
    assert hold.starts is None


def test_the_earliest_start_is_the_end_after_which_it_fits() -> None:
    slices = [
        held(str(i), (2 * (i % 2), 2 * (i // 2)), ends=later(100 * (i + 1))) for i in range(4)
    ]
    for count in range(1, 5):
        group = tuple(queued(f"g/{i}", group="g") for i in range(count))
        hold = earliest(HOSTS, "g", group, {POD: 0}, {POD: full_mask((4, 4))}, slices)
        assert hold is not None
        assert hold.starts == later(100 * count)
        assert hold.chips[POD].bit_count() == 4 * count
    broken = {POD: full_mask((4, 4)) & ~1}
    assert earliest(HOSTS, "g", group, {POD: 0}, broken, slices) is None


def test_a_hold_bars_whatever_may_still_be_there_when_it_begins() -> None:
    hold = Hold("head", later(100), {POD: 1})
    assert [hold.bars(until) for until in (later(100), later(101), None)] == [False, True, True]
    assert Hold("head", None, {POD: 1}).bars(later(0))


def test_a_gang_ends_for_certain_when_its_last_node_does() -> None:
    short, long = (queued(str(i), duration_seconds=float(i)) for i in (10, 20))
    timings = NodeTimings(create_seconds=5.0)
    assert certain_end((short, long), later(0), timings) == later(25)
    assert certain_end((short, queued("open")), later(0), timings) is None
    hosts = max(request.accelerator_type.host_count for request in (short, long))
    assert certain_end((short, long), later(0), NodeTimings(5.0, 0.5)) == later(25 + 0.5 * hosts)


def test_the_chips_of_a_node_that_is_leaving_are_held_from_now_on() -> None:
    leaving = [held("a", (0, 0), (4, 2), ends=later(-50))]
    plan = decided(HOSTS, BIG, queued("short", duration_seconds=1.0), slices=leaving)
    assert placed(plan) == []
    assert [type(action) for action in plan.actions] == [WaitGroup, WaitGroup]
