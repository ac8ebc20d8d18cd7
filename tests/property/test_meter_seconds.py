"""R1, R3 and R4 against their definitions, on generated lives of a node."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base.clock import PlatformTime
from podyard.domain.node import UsageClass
from podyard.domain.usage import PriceUnit, UsageEvent
from podyard.pricing.amounts import total
from podyard.pricing.meter import Metered, MeterPolicy, admit, meter_resource, node_policy
from podyard.pricing.rating import rate
from podyard.pricing.sku import make_sku, make_version

SECOND = 10**9
STATES = ("CREATING", "READY", "STOPPED", "STARTING", "REPAIRING")
ON_DEMAND = MeterPolicy()
END = PlatformTime(1_000 * SECOND)

# Gaps between events in tenths of a second, so that edges of seconds are hit often.
lives = st.lists(st.tuples(st.integers(0, 45), st.sampled_from(STATES)), min_size=1, max_size=20)


def events_of(life: list[tuple[int, str]]) -> list[UsageEvent]:
    events = []
    tenths = 1000
    for seq, (gap, state) in enumerate(life):
        tenths += gap
        events.append(UsageEvent(f"e{seq}", "n", seq, state, PlatformTime(tenths * SECOND // 10)))
    return events


def metered(
    events: list[UsageEvent], as_of: PlatformTime = END, policy: MeterPolicy = ON_DEMAND
) -> Metered:
    return meter_resource("n", admit(events).by_resource["n"], policy, as_of)


def by_definition(events: list[UsageEvent], as_of: PlatformTime) -> set[int]:
    """Whole seconds in which the node was READY at any tenth's start or in the tenth that follows
    it."""
    seconds = set()
    ends = [*(event.at for event in events[1:]), as_of]
    for event, end in zip(events, ends, strict=True):
        if event.state == "READY":
            last = min(end, as_of).nanos
            seconds |= {nanos // SECOND for nanos in range(event.at.nanos, last, SECOND // 10)}
    return seconds


@given(lives)
def test_billed_seconds_are_the_touched_seconds(life: list[tuple[int, str]]) -> None:
    events = events_of(life)
    result = metered(events)
    assert {second for r in result.ranges for second in r} == by_definition(events, END)
    assert result.seconds == len(by_definition(events, END))
    assert result.is_estimated == (events[-1].state == "READY")


@given(lives, st.randoms(use_true_random=False))
def test_order_and_repetition_of_delivery_change_nothing(
    life: list[tuple[int, str]], rng: object
) -> None:
    events = events_of(life)
    delivered = events + events[::2]
    rng.shuffle(delivered)  # type: ignore[attr-defined]
    assert metered(delivered) == metered(events)


@given(lives, st.integers(100, 200))
def test_seconds_add_up_over_a_split_at_a_whole_second(
    life: list[tuple[int, str]], second: int
) -> None:
    events = events_of(life)
    split = PlatformTime(second * SECOND)
    whole = {s for r in metered(events).ranges for s in r}
    before = {s for r in metered(events, split).ranges for s in r}
    assert before == {s for s in whole if s < second}


@pytest.mark.slow
@given(lives, st.integers(100, 200), st.integers(1, 9 * SECOND), st.integers(1, 4096))
def test_cost_adds_up_over_a_change_of_price(
    life: list[tuple[int, str]], second: int, nanos: int, quantity: int
) -> None:
    result = metered(events_of(life))
    moment = PlatformTime(second * SECOND).rfc3339()
    text = f"{nanos // SECOND}.{nanos % SECOND:09d}"
    start = "1970-01-01T00:00:00Z"
    one = make_sku("s", PriceUnit.CHIP_HOUR, [make_version("s", start, text, "t")])
    two = make_sku(
        "s",
        PriceUnit.CHIP_HOUR,
        [make_version("s", start, text, "t"), make_version("s", moment, text, "t")],
    )
    assert total(rate(result, one, quantity).records) == total(rate(result, two, quantity).records)
    assert sum(r.seconds for r in rate(result, two, quantity).records) == result.seconds


@given(
    st.integers(0, 700),
    st.sampled_from(UsageClass),
    st.sampled_from(["PREEMPTED", "STOPPED", "DELETING"]),
)
def test_only_a_preemption_in_the_first_minute_is_free(
    tenths: int, usage: UsageClass, ending: str
) -> None:
    events = [
        UsageEvent("a", "n", 1, "READY", PlatformTime(100 * SECOND)),
        UsageEvent("b", "n", 2, ending, PlatformTime(100 * SECOND + tenths * SECOND // 10)),
    ]
    result = metered(events, policy=node_policy(usage))
    can_be_free = usage in (UsageClass.PREEMPTIBLE, UsageClass.SPOT) and ending == "PREEMPTED"
    free = can_be_free and tenths < 600
    touched = -(-tenths // 10)
    assert (result.seconds, result.waived_seconds) == ((0, touched) if free else (touched, 0))


@given(lives, st.integers(0, 19), st.integers(1, 2000))
def test_a_clock_that_steps_back_never_makes_negative_or_extra_time(
    life: list[tuple[int, str]], position: int, back: int
) -> None:
    events = events_of(life)
    index = position % len(events)
    moved = PlatformTime(max(0, events[index].at.nanos - back * SECOND // 10))
    events[index] = UsageEvent(
        events[index].event_id, "n", events[index].seq, events[index].state, moved
    )
    ordered = admit(events).by_resource["n"]
    assert all(a.at <= b.at for a, b in itertools.pairwise(ordered))
    assert metered(events) == metered(list(ordered))


@given(lives, st.data())
def test_a_conflicting_event_changes_nothing_and_is_named(
    life: list[tuple[int, str]], data: st.DataObject
) -> None:
    events = events_of(life)
    event = data.draw(st.sampled_from(events))
    other = UsageEvent(event.event_id, "n", event.seq, "TERMINATED", event.at)
    admitted = admit([*events, other, other])
    assert admitted.quarantined == (event.event_id,)
    assert metered([*events, other]) == metered(events)
