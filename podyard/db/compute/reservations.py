"""Reservations, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, select

from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes, slices
from podyard.db.tables.queue import reservations
from podyard.domain.reservation import CapacityUnits, Reservation, ReservationState
from podyard.domain.slice import chips_from_text

_BY_NAME = select(reservations).where(reservations.c.live_name == bindparam("name"))
_BY_KEY = select(reservations).where(reservations.c.reservation_key == bindparam("key"))
_ACTIVE = (
    select(reservations)
    .where(reservations.c.state == ReservationState.ACTIVE)
    .order_by(reservations.c.created, reservations.c.reservation_key)
)
_HELD = (
    select(nodes.c.reservation_key, slices.c.chips)
    .join(slices, slices.c.node_key == nodes.c.node_key)
    .where(nodes.c.reservation_key.is_not(None))
)


def find(uow: UnitOfWork, name: str) -> Reservation | None:
    """The live one of this name."""
    return _maybe(uow.first(_BY_NAME, {"name": name}))


def find_by_key(uow: UnitOfWork, reservation_key: str) -> Reservation | None:
    return _maybe(uow.first(_BY_KEY, {"key": reservation_key}))


def of_project(uow: UnitOfWork, project: str, zone: str | None) -> list[Reservation]:
    """The live ones, in one zone or (None) in all, by zone and id."""
    query = select(reservations).where(
        reservations.c.project == project, reservations.c.live_name.is_not(None)
    )
    if zone is not None:
        query = query.where(reservations.c.zone == zone)
    return [
        to_reservation(row)
        for row in uow.all(query.order_by(reservations.c.zone, reservations.c.reservation_id))
    ]


def keys(uow: UnitOfWork) -> frozenset[str]:
    """Of all, also of those that are gone."""
    return frozenset(uow.execute(select(reservations.c.reservation_key)).scalars())


def active(uow: UnitOfWork) -> list[Reservation]:
    """Of all projects, the oldest first."""
    return [to_reservation(row) for row in uow.all(_ACTIVE)]


def held_chips(uow: UnitOfWork) -> dict[str, int]:
    """Chips that nodes hold under each reservation, by its key."""
    held: dict[str, int] = {}
    for row in uow.all(_HELD):
        held[row["reservation_key"]] = (
            held.get(row["reservation_key"], 0) + chips_from_text(row["chips"]).bit_count()
        )
    return held


def _maybe(row: Mapping[str, Any] | None) -> Reservation | None:
    return None if row is None else to_reservation(row)


def to_reservation(row: Mapping[str, Any]) -> Reservation:
    parsed = {"state": ReservationState(row["state"]), "units": CapacityUnits(row["units"])}
    return Reservation(**{**row, **parsed})
