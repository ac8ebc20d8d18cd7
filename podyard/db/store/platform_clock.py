"""The platform clock's one row. Only the control loop anchors it."""

from __future__ import annotations

import dataclasses

from sqlalchemy import insert, select

from podyard.base.clock import ClockMode, PlatformClock, PlatformTime, RealTime
from podyard.db.store.unit_of_work import UnitOfWork, clock_from_row
from podyard.db.tables.base import clock


def set_up(uow: UnitOfWork, mode: ClockMode) -> None:
    """Makes the row at first start (platform time begins at real time); later starts may change the
    mode."""
    row = uow.first(select(clock))
    if row is None:
        first = PlatformClock(mode, PlatformTime(uow.real_now.nanos), uow.real_now, running=False)
        uow.execute(insert(clock).values(id=1, loop_fence=0, **_columns(first)))
        uow.keep_clock(first)
    elif row["mode"] != mode:
        current = uow.clock
        changed = PlatformClock(mode, current.now(uow.real_now), uow.real_now, running=False)
        write(uow, changed)


def tick(
    uow: UnitOfWork, loop_fence: int, last_fence: int, suspended_nanos: int = 0
) -> PlatformClock:
    """Anchors the clock at now; returns it.

    `last_fence` is the one with which the same loop set its last anchor. Its lease may have lapsed
    since: as long as no other loop has set an anchor, its time counts, but for the
    `suspended_nanos` that the machine slept.
    """
    row = uow.first(_LOCKED)
    assert row is not None, "the clock row is made by the bootstrap"
    same_loop = row["loop_fence"] == last_fence
    uow.keep_clock(clock_from_row(row))
    ticked = uow.clock.tick_at(uow.real_now, same_loop=same_loop, suspended_nanos=suspended_nanos)
    write(uow, ticked, loop_fence)
    return ticked


def set_forward(uow: UnitOfWork, moment: PlatformTime) -> None:
    """Takes a virtual clock to `moment`, which is then the time of this unit."""
    if moment > uow.clock.anchor_platform:
        write(uow, uow.clock.move_to(moment))


def reach(uow: UnitOfWork, goal: PlatformTime, real: RealTime) -> None:
    """The end of a walk to `goal`, which was where the clock should stand at `real`: it runs on
    from there."""
    if goal >= uow.clock.anchor_platform:
        write(uow, dataclasses.replace(uow.clock.move_to(goal), anchor_real=real))


def write(uow: UnitOfWork, state: PlatformClock, loop_fence: int | None = None) -> None:
    fence = {} if loop_fence is None else {"loop_fence": loop_fence}
    uow.update(clock, {"id": 1}, {**_columns(state), **fence})
    uow.keep_clock(state)


_LOCKED = select(clock).with_for_update()


def _columns(state: PlatformClock) -> dict[str, object]:
    return {
        "mode": str(state.mode),
        "anchor_platform": state.anchor_platform,
        "anchor_real": state.anchor_real,
        "running": state.running,
        "rate_millionths": state.rate_millionths,
        "target": state.target,
    }
