"""Leases with fences, on real time: the holder of the newest fence may act, and every older one is
refused."""

from __future__ import annotations

import dataclasses

from sqlalchemy import bindparam, insert, or_, select, update

from podyard.base.clock import RealTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import leases

LOOP_LEADER = "loop.leader"  # the lease of the control loop that leads


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    name: str
    owner: str
    fence: int
    until: RealTime


def acquire(uow: UnitOfWork, name: str, owner: str, seconds: float) -> Lease | None:
    """Takes or renews the lease; None while another owner's lease runs. A new owner gets a new,
    higher fence."""
    until = uow.real_now.plus_seconds(seconds)
    row = uow.first(_BY_NAME_LOCKED, {"name": name})
    if row is None:
        uow.execute(insert(leases).values(name=name, owner=owner, fence=1, until=until))
        return Lease(name, owner, 1, until)
    if row["owner"] != owner and row["until"] > uow.real_now:
        return None
    # An owner whose lease has lapsed may have been replaced and come back: it gets a new fence too.
    renewed = row["owner"] == owner and row["until"] > uow.real_now
    fence = row["fence"] if renewed else row["fence"] + 1
    uow.update(leases, {"name": name}, {"owner": owner, "fence": fence, "until": until})
    return Lease(name, owner, fence, until)


_BY_NAME_LOCKED = select(leases).where(leases.c.name == bindparam("name")).with_for_update()


def release(uow: UnitOfWork, name: str, owner: str) -> None:
    """Lets the lease lapse now, so that the next owner need not wait. `owner`: all of it, or what
    stands after the last stroke, where no two owners have the same there."""
    is_owner = or_(leases.c.owner == owner, leases.c.owner.endswith(f"/{owner}", autoescape=True))
    uow.execute(update(leases).where(leases.c.name == name, is_owner).values(until=uow.real_now))


def is_held(uow: UnitOfWork, name: str) -> bool:
    row = uow.first(select(leases.c.until).where(leases.c.name == name))
    return row is not None and bool(row["until"] > uow.real_now)
