"""How much one caller may ask through the door."""

from __future__ import annotations

import pytest

from podyard.base.clock import ManualClock, RealTime
from podyard.http import limits
from podyard.http.limits import (
    PER_ADDRESS,
    PER_ADDRESS_REFUSED,
    PER_CALLER,
    DoorLimits,
    Rate,
    TokenBuckets,
)

START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")


def test_a_burst_is_taken_then_the_rate_counts() -> None:
    clock = ManualClock(START)
    buckets = TokenBuckets(Rate(2.0, 3), clock)
    assert [buckets.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b") == 0.0
    clock.advance(0.5)
    assert (buckets.take("a"), buckets.take("a")) == (0.0, 0.5)
    clock.advance(3600)
    assert [buckets.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_the_callers_that_are_remembered_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUCKETS_MAX", 2)
    buckets = TokenBuckets(Rate(1.0, 1), ManualClock(START))
    assert [buckets.take(name) for name in "abc"] == [0.0, 0.0, 0.0]
    assert buckets.take("a") == 0.0  # forgotten
    assert buckets.take("c") > 0.0


def test_address_and_caller_have_limits_of_their_own() -> None:
    door = DoorLimits(ManualClock(START))
    for _ in range(PER_ADDRESS.burst):
        door.on_request("192.0.2.1")
    with pytest.raises(
        limits.TooManyRequests, match=r"too many requests of address 192\.0\.2\.1: try again in 1 s"
    ):
        door.on_request("192.0.2.1")
    door.on_request("192.0.2.2")
    for _ in range(PER_CALLER.burst):
        door.on_caller("ann@example.com")
    with pytest.raises(limits.TooManyRequests, match=r"ann@example\.com"):
        door.on_caller("ann@example.com")


def test_an_address_that_guesses_is_stopped_for_a_while() -> None:
    clock = ManualClock(START)
    door = DoorLimits(clock)
    for _ in range(PER_ADDRESS_REFUSED.burst):
        door.on_request("192.0.2.1")
        door.on_refused("192.0.2.1")
    with pytest.raises(limits.TooManyRequests, match="whose credentials were refused"):
        door.on_request("192.0.2.1")
    clock.advance(1.0)
    door.on_request("192.0.2.1")
