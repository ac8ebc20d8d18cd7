"""Two clocks, two types. This is the only file that reads the clock of the operating system.

*Platform time* is the time of the emulated cloud: node life, timers, createTime, metering,
invoices.
*Real time* is the time of this machine: leases, heartbeats, time-outs, tokens, HTTP.
Both are integers of nanoseconds since 1970-01-01T00:00:00Z (POSIX: leap seconds do not exist). The
two classes do not compare with each other and do not subtract from each other; only `PlatformClock`
turns one into the other.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import threading
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol, Self

NANOS_PER_SECOND = 1_000_000_000
NANOS_END = 1 << 63  # databases keep times in 64 bits

# RFC 3339 with up to nine decimals, as google.protobuf.Timestamp prints and reads it.
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)",
)


def seconds_to_nanos(seconds: float) -> int:
    return round(seconds * NANOS_PER_SECOND)


@dataclasses.dataclass(frozen=True, slots=True)
class _Instant:
    nanos: int

    def plus_seconds(self, seconds: float) -> Self:
        return type(self)(self.nanos + seconds_to_nanos(seconds))

    def plus_nanos(self, nanos: int) -> Self:
        return type(self)(self.nanos + nanos)

    def nanos_since(self, earlier: Self) -> int:
        if type(earlier) is not type(self):
            raise TypeError(
                f"{type(self).__name__} minus {type(earlier).__name__}: the two clocks do not mix"
            )
        return self.nanos - earlier.nanos

    def seconds_since(self, earlier: Self) -> float:
        return self.nanos_since(earlier) / NANOS_PER_SECOND

    def rfc3339(self) -> str:
        """`2026-11-21T09:30:00.123456789Z`: 0, 3, 6 or 9 decimals, as the protobuf JSON mapping
        prints."""
        seconds, nanos = divmod(self.nanos, NANOS_PER_SECOND)
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        if nanos == 0:
            return text + "Z"
        digits = f"{nanos:09d}"
        for length in (3, 6):
            if digits.endswith("0" * (9 - length)):
                return f"{text}.{digits[:length]}Z"
        return f"{text}.{digits}Z"

    @classmethod
    def from_rfc3339(cls, text: str) -> Self:
        """Reads RFC 3339; raises ValueError when `text` is not a complete time with an offset, or
        too far away."""
        match = _RFC3339.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an RFC 3339 time with an offset")
        whole = datetime.fromisoformat(f"{text[:10]}T{text[11:19]}+00:00")
        nanos = int((match[7] or "0").ljust(9, "0"))
        offset_seconds = 0
        if match[8] not in "Zz":
            hours, minutes = int(match[8][1:3]), int(match[8][4:6])
            if hours > 23 or minutes > 59:
                raise ValueError(f"{text!r} has an invalid offset")
            offset_seconds = (-1 if match[8][0] == "-" else 1) * (hours * 3600 + minutes * 60)
        found = (int(whole.timestamp()) - offset_seconds) * NANOS_PER_SECOND + nanos
        if not -NANOS_END <= found < NANOS_END:
            raise ValueError(f"{text!r} cannot be stored: years range from 1678 to 2261")
        return cls(found)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class PlatformTime(_Instant):
    """A time of the emulated cloud."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class RealTime(_Instant):
    """A time of this machine."""


class RealClock(Protocol):
    """The machine's clock. `monotonic_seconds` never steps back and is for measuring durations
    only.

    `suspended_seconds` is how long the machine has slept since some fixed moment: a difference of
    two readings is the sleep between them.
    """

    def now(self) -> RealTime: ...
    def monotonic_seconds(self) -> float: ...
    def suspended_seconds(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class OsClock:
    """The clock of the operating system."""

    def now(self) -> RealTime:
        return RealTime(time.time_ns())

    def monotonic_seconds(self) -> float:
        return time.monotonic()

    def suspended_seconds(self) -> float:
        """One clock of the kernel counts sleep and another does not (clock_gettime(2) on Linux and
        on macOS). On
        systems with neither pair it is 0: sleep is not noticed there."""
        if sys.platform == "linux":
            awake_and_asleep, awake = time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
        elif sys.platform == "darwin":
            awake_and_asleep, awake = time.CLOCK_MONOTONIC_RAW, time.CLOCK_UPTIME_RAW
        else:
            return 0.0
        for _ in range(_READINGS_MAX):
            before = time.clock_gettime_ns(awake)
            total = time.clock_gettime_ns(awake_and_asleep)
            # A process that loses its CPU between the readings would see sleep where there was
            # none.
            if time.clock_gettime_ns(awake) - before < _READING_NANOS_MAX:
                break
        return (total - before) / NANOS_PER_SECOND

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A machine clock that stands still until it is moved: for tests and simulation. `sleep` moves
    it."""

    def __init__(self, start: RealTime) -> None:
        self._now = start
        self._suspended_seconds = 0.0
        self._lock = threading.Lock()

    def now(self) -> RealTime:
        return self._now

    def monotonic_seconds(self) -> float:
        return self._now.nanos / NANOS_PER_SECOND

    def suspended_seconds(self) -> float:
        return self._suspended_seconds

    def suspend(self, seconds: float) -> None:
        """Moves the clock as a machine that sleeps does: the time passes, and nothing runs
        meanwhile."""
        self.advance(seconds)
        self._suspended_seconds += seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("a machine clock does not run backwards")
        with self._lock:
            self._now = self._now.plus_seconds(seconds)


class ClockMode(StrEnum):
    LOCAL = "local"
    SYSTEM = "system"
    VIRTUAL = "virtual"


# A `local` clock that no loop has anchored for this long stands still: longer than a few loop
# ticks, short enough that a closed laptop or a dead loop is billed for one second at most.
LOCAL_HORIZON_SECONDS = 1.0

_READINGS_MAX = 100  # of a pair of kernel clocks; nearly always the first one is good
_READING_NANOS_MAX = 1_000_000

LAG_SECONDS_SHOWN = 1.0  # what people are told of: a local clock is always a moment behind

RATE_ONE = 1_000_000  # rates are integers of millionths of a platform second per real second


@dataclasses.dataclass(frozen=True, slots=True)
class PlatformClock:
    """The platform clock's numbers, as they stand in its one database row.

    local: `now = anchor_platform + elapsed real time since anchor_real`, at most
    `LOCAL_HORIZON_SECONDS` beyond the last anchor, and nothing while stopped. system: platform time
    is UTC, and the anchor is not asked. virtual: the clock stands where the control loop has set
    it; the loop walks it to `goal`, from timer to timer, so that nobody reads a time before what
    was due until then has happened. `now` never runs backwards.
    """

    mode: ClockMode
    anchor_platform: PlatformTime
    anchor_real: RealTime
    running: bool = True
    rate_millionths: int = RATE_ONE  # of a virtual clock; 0: it is paused
    target: PlatformTime | None = None  # an `advance` that the loop is still walking to
    fault_rules: int = 0  # how many are not over: readers of the time know whether to look for them

    def now(self, real: RealTime) -> PlatformTime:
        if self.mode is ClockMode.SYSTEM:
            return max(self.anchor_platform, PlatformTime(real.nanos))
        if self.mode is ClockMode.VIRTUAL or not self.running:
            return self.anchor_platform
        elapsed = max(0, real.nanos_since(self.anchor_real))
        return self.anchor_platform.plus_nanos(
            min(elapsed, seconds_to_nanos(LOCAL_HORIZON_SECONDS))
        )

    def goal(self, real: RealTime) -> PlatformTime:
        """Return where a virtual clock belongs at `real`: at its target if it has one, else as far
        as its rate takes it."""
        if self.target is not None:
            return self.target
        elapsed = max(0, real.nanos_since(self.anchor_real)) if self.running else 0
        return self.anchor_platform.plus_nanos(elapsed * self.rate_millionths // RATE_ONE)

    def tick_at(
        self, real: RealTime, *, same_loop: bool, suspended_nanos: int = 0
    ) -> PlatformClock:
        """The clock anchored at `real` by the control loop.

        `same_loop`: the loop that set the last anchor sets this one. All time since then counts,
        however late it is, but for the `suspended_nanos` that the machine slept. After a change of
        loop only what readers may already have seen counts. A virtual clock is anchored where its
        walks end; here its anchor moves over the sleep.
        """
        counted = real.plus_nanos(-suspended_nanos).nanos_since(self.anchor_real)
        if not same_loop or not self.running or counted < 0:
            return dataclasses.replace(
                self, anchor_platform=self.now(real), anchor_real=real, running=True
            )
        if self.mode is ClockMode.VIRTUAL:
            moved = self.anchor_real.plus_nanos(suspended_nanos)
            return dataclasses.replace(self, anchor_real=moved) if suspended_nanos else self
        anchor = self.now(real)
        if self.mode is ClockMode.LOCAL:
            anchor = max(anchor, self.anchor_platform.plus_nanos(counted))
        return dataclasses.replace(self, anchor_platform=anchor, anchor_real=real)

    def lag_seconds(self, real: RealTime) -> float | None:
        """Return how far a local clock is behind UTC: what it stood still for, since it was made.
        None for the other modes, which are UTC or are set."""
        if self.mode is not ClockMode.LOCAL:
            return None
        return max(0, real.nanos - self.now(real).nanos) / NANOS_PER_SECOND

    def stop_at(self, real: RealTime) -> PlatformClock:
        """The clock standing still from `real` on (`system` goes on: it is UTC)."""
        return dataclasses.replace(
            self, anchor_platform=self.now(real), anchor_real=real, running=False
        )

    def move_to(self, moment: PlatformTime) -> PlatformClock:
        """A virtual clock set forward to `moment`, on the way to its goal or at it; raises
        ValueError when that would run it backwards. Its target is gone once it is reached."""
        if moment < self.anchor_platform:
            raise ValueError("the platform clock does not run backwards")
        reached = self.target is not None and moment >= self.target
        return dataclasses.replace(
            self, anchor_platform=moment, target=None if reached else self.target
        )
