"""The time of a database server, which all processes of one Podyard share whatever the clocks of
their machines say.

Leases, expiries and the platform clock compare times that several processes have written. On
PostgreSQL these processes may run on machines whose clocks differ by minutes, so their units of
work go by the server's clock: it is asked now and then, and counted on from there by the machine's
monotonic clock, which nobody sets.
"""

from __future__ import annotations

import dataclasses

from sqlalchemy import Connection, text

from podyard.base.clock import RealClock, RealTime
from podyard.db.engines.direct_statements import DirectConnection

# two monotonic clocks drift apart by a millisecond in this time, and a failover is seen within it
ASK_SECONDS = 10.0
_ASK = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint")


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    server: RealTime
    at_seconds: float  # of the monotonic clock, in the middle of the question
    suspended_seconds: float


class ServerTime:
    """Thread-safe: an answer is replaced as a whole."""

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._answer: _Answer | None = None

    def now(self, connection: Connection | DirectConnection) -> RealTime:
        """The server's time. Raises what the driver raises where it does not answer."""
        found = self._answer
        # The monotonic clock stands still while the machine sleeps.
        if (
            found is None
            or self._clock.monotonic_seconds() - found.at_seconds > ASK_SECONDS
            or self._clock.suspended_seconds() > found.suspended_seconds
        ):
            found = self._answer = self._ask(connection)
        return found.server.plus_seconds(self._clock.monotonic_seconds() - found.at_seconds)

    def _ask(self, connection: Connection | DirectConnection) -> _Answer:
        suspended, before = self._clock.suspended_seconds(), self._clock.monotonic_seconds()
        nanos = int(connection.execute(_ASK).scalar_one())
        return _Answer(RealTime(nanos), (before + self._clock.monotonic_seconds()) / 2, suspended)
