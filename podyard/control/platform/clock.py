"""The platform clock in its owner's hand. A `virtual` clock can be advanced, paused, and run at
another rate.

`advance` sets a target only: the control loop walks to it, from timer to timer, so that no jump
overtakes what is due.
"""

from __future__ import annotations

import dataclasses
import re

from podyard.base.clock import RATE_ONE, ClockMode, PlatformClock, PlatformTime
from podyard.base.errors import failed_precondition, invalid, not_found
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal

# platform seconds per real second: a month in three seconds, faster than a loop can walk it
RATE_MAX = 1_000_000
# times end in 2261: what is due a life later must have one
LATEST = PlatformTime.from_rfc3339("2200-01-01T00:00:00Z")
_OPERATION = re.compile(r"advance-(\d{1,19})")


@dataclasses.dataclass(frozen=True, slots=True)
class Advance:
    """The way to a target. It is over once platform time has reached it, whatever brought it
    there."""

    target: PlatformTime
    now: PlatformTime

    @property
    def name(self) -> str:
        return f"clock/operations/advance-{self.target.nanos}"

    @property
    def is_done(self) -> bool:
        return self.now >= self.target


def advance(
    uow: UnitOfWork,
    principal: Principal,
    *,
    by_nanos: int | None = None,
    to: PlatformTime | None = None,
) -> Advance:
    """Sets the clock's target, by a length of time or to a moment. Raises INVALID_ARGUMENT for a
    moment that has
    passed, FAILED_PRECONDITION when the clock is not virtual or is on its way to a later target."""
    clock = _settable(uow, principal)
    if (by_nanos is None) == (to is None):
        raise invalid("specify either a duration or the time to advance to", "duration")
    target = uow.now.plus_nanos(by_nanos) if by_nanos is not None else to
    assert target is not None
    if target < uow.now:
        raise invalid(
            f"{target.rfc3339()} is in the past: the platform clock cannot run backwards", "time"
        )
    if target > LATEST:
        raise invalid(f"the platform clock cannot advance beyond {LATEST.rfc3339()}", "time")
    if clock.target is not None and clock.target > target:
        raise failed_precondition(
            f"the clock is already advancing to {clock.target.rfc3339()}: pause it first"
        )
    platform_clock.write(uow, dataclasses.replace(clock, target=target))
    return Advance(target, uow.now)


def find_advance(uow: UnitOfWork, principal: Principal, operation_id: str) -> Advance:
    principal.require("podyard.clock.set", "*", "clock")
    match = _OPERATION.fullmatch(operation_id)
    if match is None:
        raise not_found(f"clock/operations/{operation_id}")
    return Advance(PlatformTime(int(match[1])), uow.now)


def set_rate(uow: UnitOfWork, principal: Principal, rate: float) -> PlatformClock:
    """Platform seconds per real second from now on; 0 pauses. A walk that is under way ends where
    it is."""
    clock = _settable(uow, principal)
    if not 0 <= rate <= RATE_MAX:
        raise invalid(
            f"the rate must be from 0 to {RATE_MAX} platform seconds per real second, got {rate:g}",
            "rate",
        )
    millionths = round(rate * RATE_ONE)
    changed = dataclasses.replace(
        clock, rate_millionths=millionths, target=None, anchor_real=uow.real_now
    )
    platform_clock.write(uow, changed)
    return changed


def _settable(uow: UnitOfWork, principal: Principal) -> PlatformClock:
    principal.require("podyard.clock.set", "*", "clock")
    if uow.clock.mode is not ClockMode.VIRTUAL:
        raise failed_precondition(
            f"the platform clock is {uow.clock.mode} and cannot be set: start Podyard with "
            "--clock virtual"
        )
    return uow.clock
