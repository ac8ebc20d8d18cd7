"""Limits of one caller: token buckets, in the memory of each API process.

Two API processes therefore give a caller twice as much; the limits are there against floods, not to
sell.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError

# callers that are remembered; the one that asked longest ago is forgotten first
BUCKETS_MAX = 65_536


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second for long, and at once after a pause."""

    per_second: float
    burst: int


# A machine with 64 replicas reports 128 times a second, and an office has one address.
PER_ADDRESS = Rate(400.0, 4000)
# A person with `podyard ... --worker=all` on a v4-4096 asks some 500 times at once; a script that
# polls asks far less.
PER_CALLER = Rate(100.0, 2000)
# Wrong credentials: a person mistypes a token a few times; guessing one takes longer than any
# limit.
PER_ADDRESS_REFUSED = Rate(1.0, 60)


class TokenBuckets:
    """One bucket for each key. Not thread-safe: for an event loop."""

    def __init__(self, rate: Rate, clock: RealClock) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """0.0 if a token was there and is taken; else the seconds until there is one."""
        left, now = self._tokens_of(key), self._clock.monotonic_seconds()
        if left < 1.0:
            return (1.0 - left) / self._rate.per_second
        self._buckets[key] = (left - 1.0, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        return 0.0

    def is_empty(self, key: str) -> bool:
        return self._tokens_of(key) < 1.0

    def _tokens_of(self, key: str) -> float:
        left, since = self._buckets.get(key, (float(self._rate.burst), 0.0))
        grown = left + (self._clock.monotonic_seconds() - since) * self._rate.per_second
        return min(float(self._rate.burst), grown)


class TooManyRequests(PodyardError):
    """`retry_seconds`: when the next request would be taken."""

    def __init__(self, who: str, seconds: float) -> None:
        self.retry_seconds = max(1, math.ceil(seconds))
        text = f"too many requests of {who}: try again in {self.retry_seconds} s"
        super().__init__(Code.RESOURCE_EXHAUSTED, text)


class DoorLimits:
    """The limits of what comes through the door. Each method raises TooManyRequests."""

    def __init__(self, clock: RealClock) -> None:
        self._addresses = TokenBuckets(PER_ADDRESS, clock)
        self._callers = TokenBuckets(PER_CALLER, clock)
        self._refused = TokenBuckets(PER_ADDRESS_REFUSED, clock)

    def on_request(self, address: str) -> None:
        if self._refused.is_empty(address):
            raise TooManyRequests(f"address {address}, whose credentials were refused", 1.0)
        if wait := self._addresses.take(address):
            raise TooManyRequests(f"address {address}", wait)

    def on_caller(self, caller: str) -> None:
        if wait := self._callers.take(caller):
            raise TooManyRequests(caller, wait)

    def on_refused(self, address: str) -> None:
        """A credential from there was refused."""
        self._refused.take(address)
