"""Reservations: made by the owner of the platform, used by nodes that are asked for as reserved.

A reservation is a right to be placed. It sets no chips aside: others may hold them when a reserved request comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid, not_found
from podyard.base.ids import check_resource_id, row_id
from podyard.control import access, nodes
from podyard.db import fleet as fleet_rows
from podyard.db import timers
from podyard.db.tables_queue import reservations
from podyard.db.transition import RESERVATIONS, born_row, move_row
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.principal import Principal
from podyard.domain.reservation import UNITS, Reservation, reservation_name

SIZE_MAX = 1_000_000  # units; no fleet is larger, and it keeps the column's numbers small


def create(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    reservation_id: str,
    generation: str,
    size: int,
    units: str = "CHIPS",
    starts: PlatformTime | None = None,
    ends: PlatformTime | None = None,
) -> Reservation:
    """Makes a reservation of `size` CHIPS or CORES; ACTIVE from `starts` (None: at once) until `ends` (None: always).

    Raises INVALID_ARGUMENT for a generation that the zone does not offer as reserved, and ALREADY_EXISTS.
    """
    name = reservation_name(project, zone, reservation_id)
    principal.require("podyard.reservations.create", project, name)
    check_resource_id(reservation_id, "reservationId")
    _check(fleet, zone, generation, size, units)
    if ends is not None and ends <= max(uow.now, starts or uow.now):
        raise invalid("the reservation ends before it begins, or in the past", "endTime")
    access.project_row(uow, project)
    if uow.first(select(reservations).where(reservations.c.live_name == name)) is not None:
        raise PodyardError(Code.ALREADY_EXISTS, f"Resource '{name}' already exists")
    row: dict[str, Any] = {
        "reservation_key": row_id(uow.streams.stream("reservations"), "reservation"),
        "project": project,
        "zone": zone,
        "reservation_id": reservation_id,
        "live_name": name,
        "generation": generation,
        "size": size,
        "units": units,
        "starts": starts,
        "ends": ends,
        "created": uow.now,
    }
    born_row(uow, RESERVATIONS, row, reason="requested")
    if starts is None or starts <= uow.now:
        _start(uow, _live(uow, project, zone, reservation_id))
    else:
        timers.put(uow, "reservation.start", row["reservation_key"], 0, starts)
    if ends is not None:
        timers.put(uow, "reservation.end", row["reservation_key"], 0, ends)
    return _record(uow, _live(uow, project, zone, reservation_id))


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, reservation_id: str) -> Reservation:
    principal.require("tpu.reservations.list", project, reservation_name(project, zone, reservation_id))
    return _record(uow, _live(uow, project, zone, reservation_id))


def list_reservations(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str | None
) -> list[Reservation]:
    """All of one zone, or (None) of all zones, by zone and id."""
    principal.require("tpu.reservations.list", project, f"projects/{project}/locations/{zone or '-'}")
    query = select(reservations).where(reservations.c.project == project, reservations.c.live_name.is_not(None))
    if zone is not None:
        query = query.where(reservations.c.zone == nodes.zone_of(fleet, zone).name)
    used = fleet_rows.reserved_chips(uow)
    found = uow.all(query.order_by(reservations.c.zone, reservations.c.reservation_id))
    return [_record(uow, row, used) for row in found]


def delete(uow: UnitOfWork, principal: Principal, project: str, zone: str, reservation_id: str) -> None:
    """Raises FAILED_PRECONDITION while nodes are placed under it."""
    principal.require("podyard.reservations.delete", project, reservation_name(project, zone, reservation_id))
    row = _live(uow, project, zone, reservation_id)
    used = _record(uow, row).used
    if used:
        raise failed_precondition(f"nodes use {used} {row['units']} of reservation {reservation_id}: delete them first")
    move_row(uow, RESERVATIONS, row, "delete", reason="delete requested", live_name=None)
    timers.drop(uow, row["reservation_key"])


def on_timer(uow: UnitOfWork, timer: Mapping[str, Any]) -> None:
    """Begins and ends a reservation. Nodes that are placed under it when it ends stay until they are deleted."""
    row = uow.first(select(reservations).where(reservations.c.reservation_key == timer["resource_key"]))
    if row is None:
        return
    if timer["kind"] == "reservation.start" and row["state"] == "APPROVED":
        _start(uow, row)
    elif timer["kind"] == "reservation.end" and row["state"] == "ACTIVE":
        move_row(uow, RESERVATIONS, row, "expire", reason="its end has come")


def _start(uow: UnitOfWork, row: Mapping[str, Any]) -> None:
    move_row(uow, RESERVATIONS, row, "activate", reason="its start has come")


def _check(fleet: Fleet, zone: str, generation: str, size: int, units: str) -> None:
    offer = nodes.zone_of(fleet, zone).offers.get(generation)
    if offer is None or "reserved" not in offer.usage_classes:
        raise invalid(f"{zone} does not offer {generation} as reserved", "generation")
    if units not in UNITS:
        raise invalid(f"capacityUnits {units!r} is neither of {', '.join(UNITS)}", "capacityUnits")
    if not 1 <= size <= SIZE_MAX:
        raise invalid(f"the size of a reservation is 1 to {SIZE_MAX} {units}", "size")


def _live(uow: UnitOfWork, project: str, zone: str, reservation_id: str) -> Mapping[str, Any]:
    name = reservation_name(project, zone, reservation_id)
    row = uow.first(select(reservations).where(reservations.c.live_name == name))
    if row is None:
        raise not_found(name)
    return row


def _record(uow: UnitOfWork, row: Mapping[str, Any], used: Mapping[str, int] | None = None) -> Reservation:
    chips = (fleet_rows.reserved_chips(uow) if used is None else used).get(row["reservation_key"], 0)
    same = ("reservation_key", "project", "zone", "reservation_id", "state", "generation", "units", "size")
    return Reservation(
        **{name: row[name] for name in (*same, "starts", "ends", "created")},
        used=chips * fleet_rows.units_per_chip(row),
    )
