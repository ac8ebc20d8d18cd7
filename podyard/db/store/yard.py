"""The one row of a yard: the secret that keys are derived from, and where its hosts' addresses
begin."""

from __future__ import annotations

import dataclasses

from sqlalchemy import select

from podyard.base.rng import secret_token
from podyard.db.engines.driver import insert_with_conflict
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import yard
from podyard.domain.host import ADDRESSES


@dataclasses.dataclass(frozen=True, slots=True)
class Yard:
    """`folders_id`: what its data folders are known by; None before the first API has started."""

    secret: str
    address_base: int
    folders_id: str | None = None


_YARD = select(yard.c.secret, yard.c.address_base, yard.c.folders_id)


def read(uow: UnitOfWork) -> Yard:
    """The yard, which the first host makes (`ensure`)."""
    row = uow.first(_YARD)
    assert row is not None, "a yard that has hosts has its row"
    return Yard(**row)


def ensure(uow: UnitOfWork) -> Yard:
    """The yard; made now if there is none. The secret never comes from a seed; the addresses do, so
    that a simulation can be repeated."""
    row = uow.first(_YARD)
    if row is None:
        base = uow.streams.stream("addresses").randrange(ADDRESSES)
        made = insert_with_conflict(yard, uow.connection.dialect).values(
            id=1, secret=secret_token(), address_base=base
        )
        uow.execute(made.on_conflict_do_nothing())  # another process may have made it meanwhile
    return read(uow)


def folders_id(uow: UnitOfWork) -> str | None:
    row = uow.first(_YARD)
    return None if row is None else Yard(**row).folders_id


def keep_folders_id(uow: UnitOfWork, folders_id: str | None) -> None:
    """None: the next API that starts brings its own folders."""
    ensure(uow)
    uow.update(yard, {"id": 1}, {"folders_id": folders_id})
