"""How the platform clock runs in its three modes."""

from __future__ import annotations

import dataclasses

import pytest

from podyard.base.clock import NANOS_PER_SECOND, ClockMode, PlatformClock, PlatformTime, RealTime

REAL = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
PLATFORM = PlatformTime.from_rfc3339("2027-01-01T00:00:00Z")


def _clock(mode: ClockMode, **values: object) -> PlatformClock:
    return dataclasses.replace(PlatformClock(mode, PLATFORM, REAL), **values)  # type: ignore[arg-type]


def test_a_local_clock_runs_one_second_beyond_its_anchor_at_most() -> None:
    clock = _clock(ClockMode.LOCAL)
    assert clock.now(REAL.plus_seconds(0.5)) == PLATFORM.plus_seconds(0.5)
    assert clock.now(REAL.plus_seconds(60)) == PLATFORM.plus_seconds(1)
    assert clock.now(REAL.plus_seconds(-60)) == PLATFORM


def test_a_local_clock_counts_what_its_loop_was_there_for() -> None:
    clock = _clock(ClockMode.LOCAL)
    busy = REAL.plus_seconds(33)
    assert clock.tick_at(busy, same_loop=True).anchor_platform == PLATFORM.plus_seconds(33)
    assert clock.tick_at(busy, same_loop=False).anchor_platform == PLATFORM.plus_seconds(1)
    slept = clock.tick_at(busy, same_loop=True, suspended_nanos=30 * NANOS_PER_SECOND)
    assert slept.anchor_platform == PLATFORM.plus_seconds(3)
    assert clock.stop_at(REAL.plus_seconds(0.25)).now(busy) == PLATFORM.plus_seconds(0.25)


def test_a_system_clock_is_utc_and_does_not_fall_behind_its_anchor() -> None:
    later = RealTime.from_rfc3339("2028-01-01T00:00:00Z")
    assert _clock(ClockMode.SYSTEM).now(later) == PlatformTime(later.nanos)
    assert _clock(ClockMode.SYSTEM).now(REAL) == PLATFORM


def test_a_virtual_clock_stands_where_it_was_set_and_has_a_goal_by_its_rate() -> None:
    clock = _clock(ClockMode.VIRTUAL, rate_millionths=60_000_000)
    second = REAL.plus_seconds(1)
    assert clock.now(second) == PLATFORM
    assert clock.goal(second) == PLATFORM.plus_seconds(60)
    assert clock.goal(REAL.plus_seconds(33)) == PLATFORM.plus_seconds(33 * 60)
    assert clock.tick_at(second, same_loop=True) == clock
    assert clock.tick_at(second, same_loop=False).goal(second) == PLATFORM
    asleep = clock.tick_at(
        REAL.plus_seconds(33), same_loop=True, suspended_nanos=32 * NANOS_PER_SECOND
    )
    assert asleep.goal(REAL.plus_seconds(33)) == PLATFORM.plus_seconds(60)
    assert dataclasses.replace(clock, rate_millionths=0).goal(second) == PLATFORM


def test_a_target_is_the_goal_until_it_is_reached() -> None:
    target = PLATFORM.plus_seconds(3600)
    clock = _clock(ClockMode.VIRTUAL, target=target)
    assert clock.goal(REAL.plus_seconds(1)) == target
    halfway = clock.move_to(PLATFORM.plus_seconds(1800))
    assert (halfway.target, halfway.now(REAL)) == (target, PLATFORM.plus_seconds(1800))
    assert clock.move_to(target).target is None
    with pytest.raises(ValueError, match="backwards"):
        clock.move_to(PLATFORM.plus_nanos(-1))
