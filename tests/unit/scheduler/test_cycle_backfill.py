"""A recorded case on a virtual clock: a request for a whole pod starts on time while small ones
fill the gap."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.rng import Streams
from podyard.domain.fleet import FleetSnapshot, PlacementRequest
from podyard.domain.plan import Plan
from podyard.domain.slice import SliceRecord
from podyard.scheduler.cycle import decide
from podyard.scheduler.predict import after, predict
from podyard.scheduler.queue import Queue
from tests.unit.scheduler.scheduling import (
    NOW,
    WIDE,
    assert_no_overlap,
    held,
    later,
    placed,
    queued,
)

HOUR = 3600.0
CHIPS = 64
Deciding = Callable[[FleetSnapshot, PlatformTime], Plan]

# The pod is free but for a quarter that ends after two hours; the whole pod is asked for one minute
# in. Then a small request each five minutes, from 20 to 80 minutes long.
RUNNING = held("running", (0, 0), (4, 4), "on-demand", ends=later(2 * HOUR), pod_shape=(8, 8))
BIG = queued("big", "v2-128", created=later(60), duration_seconds=HOUR)


def small_ones() -> list[PlacementRequest]:
    chance = Streams(6).stream("small")
    kinds = ("v2-8", "v2-8", "v2-32")
    return [
        queued(
            f"small-{i:02d}",
            kinds[chance.randrange(3)],
            created=later(120 + 300 * i),
            duration_seconds=60.0 * chance.randrange(20, 81),
        )
        for i in range(36)
    ]


def with_backfill(snapshot: FleetSnapshot, now: PlatformTime) -> Plan:
    return decide(snapshot, now, Streams(1))


def strict_fifo(snapshot: FleetSnapshot, now: PlatformTime) -> Plan:
    """The same without backfill: nobody goes past the first group that has to wait."""
    actions, state = [], dataclasses.replace(snapshot, waiting=[])
    for group in Queue(snapshot).in_order():
        plan = decide(dataclasses.replace(state, waiting=group), now, Streams(1))
        if not placed(plan):
            break
        actions += plan.actions
        state = after(dataclasses.replace(state, waiting=group), plan, now)
    return Plan(tuple(actions))


def play(
    arrivals: Sequence[PlacementRequest], deciding: Deciding
) -> tuple[dict[str, PlatformTime], float]:
    """(start of each group, mean part of the chips in use until three hours have passed)."""
    starts: dict[str, PlatformTime] = {}
    slices: Sequence[SliceRecord] = [RUNNING]
    to_come = sorted(arrivals, key=lambda item: item.created)
    waiting: Sequence[PlacementRequest] = []
    now, end, busy = NOW, later(3 * HOUR), 0.0
    while now < end:
        slices = [item for item in slices if item.ends is None or item.ends > now]
        waiting = [*waiting, *(item for item in to_come if item.created <= now)]
        to_come = [item for item in to_come if item.created > now]
        plan = deciding(FleetSnapshot(WIDE, slices=slices, waiting=waiting), now)
        starts |= dict.fromkeys(placed(plan), now)
        state = after(FleetSnapshot(WIDE, slices=slices, waiting=waiting), plan, now)
        slices, waiting = state.slices, state.waiting
        assert_no_overlap(slices)
        moments = [item.ends for item in slices if item.ends is not None] + [
            item.created for item in to_come
        ]
        following = min([end, *moments])
        busy += following.seconds_since(now) * sum(item.chips.bit_count() for item in slices)
        now = following
    return starts, busy / (CHIPS * 3 * HOUR)


def test_a_big_gang_starts_on_time_while_small_requests_fill_the_gap() -> None:
    arrivals = [BIG, *small_ones()]
    starts, used = play(arrivals, with_backfill)
    fifo_starts, fifo_used = play(arrivals, strict_fifo)
    # On time: the moment at which it would start if it were alone.
    assert (
        starts["big"]
        == fifo_starts["big"]
        == play([BIG], with_backfill)[0]["big"]
        == later(2 * HOUR)
    )
    before = [key for key, at in starts.items() if at < starts["big"]]
    assert (len(before), [key for key, at in fifo_starts.items() if at < fifo_starts["big"]]) == (
        8,
        [],
    )
    # These are the figures of docs/internals/scheduler.md.
    assert (round(100 * used, 1), round(100 * fifo_used, 1)) == (85.4, 50.0)
    assert used - fifo_used >= 0.10


def test_the_hold_never_moves_to_a_later_time() -> None:
    seen: list[PlatformTime] = []

    def watching(snapshot: FleetSnapshot, now: PlatformTime) -> Plan:
        start = predict(snapshot, now).get("big")
        if start is not None:
            seen.append(start)
        return with_backfill(snapshot, now)

    play([BIG, *small_ones()], watching)
    assert len(seen) > 20
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {later(2 * HOUR)}
