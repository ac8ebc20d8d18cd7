"""Reservations: made by the owner of the platform, used by nodes that are asked for as reserved.

A reservation is a right to be placed. It sets no chips aside: others may hold them when a reserved
request comes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.clock import PlatformTime
from podyard.base.errors import (
    Code,
    PodyardError,
    failed_precondition,
    invalid,
    invalid_field,
    not_found,
)
from podyard.base.ids import check_resource_id, row_id
from podyard.control.access import identity
from podyard.control.compute import node_checks
from podyard.db.compute import reservations
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.transition import create_record, move
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.principal import Principal
from podyard.domain.reservation import (
    CapacityUnits,
    Reservation,
    ReservationState,
    ReservationUse,
    reservation_name,
)

SIZE_MAX = 1_000_000  # units; no fleet is larger, and it keeps the column's numbers small


def create(  # noqa: PLR0913
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
) -> ReservationUse:
    """Makes a reservation of `size` CHIPS or CORES; ACTIVE from `starts` (None: at once) until
    `ends` (None: always).

    Raises INVALID_ARGUMENT for a generation that the zone does not offer as reserved, and
    ALREADY_EXISTS.
    """
    name = reservation_name(project, zone, reservation_id)
    principal.require("podyard.reservations.create", project, name)
    check_resource_id(reservation_id, "reservation_id")
    counted = _check(fleet, zone, generation, size, units)
    if ends is not None and ends <= max(uow.now, starts or uow.now):
        raise invalid_field(
            "the end of a reservation must be in the future and after its start", "end_time"
        )
    identity.project_row(uow, project)
    if reservations.find(uow, name) is not None:
        raise PodyardError(Code.ALREADY_EXISTS, f"Resource '{name}' already exists")
    made = Reservation(
        reservation_key=row_id(uow.streams.stream("reservations"), "reservation"),
        project=project,
        zone=zone,
        reservation_id=reservation_id,
        live_name=name,
        state=ReservationState.APPROVED,
        version=1,
        generation=generation,
        size=size,
        units=counted,
        starts=starts,
        ends=ends,
        created=uow.now,
    )
    create_record(uow, made, reason="requested")
    if starts is None or starts <= uow.now:
        made = _start(uow, made)
    else:
        timers.put(uow, "reservation.start", made.reservation_key, 0, starts)
    if ends is not None:
        timers.put(uow, "reservation.end", made.reservation_key, 0, ends)
    return ReservationUse(made, 0)


def get(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, reservation_id: str
) -> ReservationUse:
    principal.require(
        "tpu.reservations.list", project, reservation_name(project, zone, reservation_id)
    )
    found = _live(uow, project, zone, reservation_id)
    return use_of(found, reservations.held_chips(uow))


def list_reservations(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str | None
) -> list[ReservationUse]:
    """All of one zone, or (None) of all zones, by zone and id."""
    principal.require(
        "tpu.reservations.list", project, f"projects/{project}/locations/{zone or '-'}"
    )
    place = None if zone is None else node_checks.zone_of(fleet, zone).name
    held = reservations.held_chips(uow)
    return [use_of(found, held) for found in reservations.of_project(uow, project, place)]


def delete(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, reservation_id: str
) -> None:
    """Raises FAILED_PRECONDITION while nodes are placed under it."""
    principal.require(
        "podyard.reservations.delete", project, reservation_name(project, zone, reservation_id)
    )
    found = _live(uow, project, zone, reservation_id)
    used = use_of(found, reservations.held_chips(uow)).used
    if used:
        raise failed_precondition(
            f"reservation {reservation_id} is in use: delete the nodes that use {used} "
            f"{found.units} of it first"
        )
    move(
        uow,
        found,
        "delete",
        reason="delete requested",
        changed=dataclasses.replace(found, live_name=None),
    )
    timers.drop(uow, found.reservation_key)


def on_timer(uow: UnitOfWork, timer: Timer) -> None:
    """Begins and ends a reservation. Nodes that are placed under it when it ends stay until they
    are deleted."""
    found = reservations.find_by_key(uow, timer.resource_key)
    if found is None:
        return
    if timer.kind == "reservation.start" and found.state is ReservationState.APPROVED:
        _start(uow, found)
    elif timer.kind == "reservation.end" and found.state is ReservationState.ACTIVE:
        move(uow, found, "expire", reason="its end has come")


def _start(uow: UnitOfWork, found: Reservation) -> Reservation:
    return move(uow, found, "activate", reason="its start has come")


def _check(fleet: Fleet, zone: str, generation: str, size: int, units: str) -> CapacityUnits:
    offer = node_checks.zone_of(fleet, zone).offers.get(generation)
    if offer is None or "reserved" not in offer.usage_classes:
        raise invalid(f"zone {zone} does not offer reserved {generation}", "generation")
    if units not in tuple(CapacityUnits):
        raise invalid_field(
            f"unknown capacityUnits {units!r}: use {' or '.join(CapacityUnits)}", "capacity_units"
        )
    if not 1 <= size <= SIZE_MAX:
        raise invalid(
            f"the size of a reservation must be from 1 to {SIZE_MAX} {units}, got {size}", "size"
        )
    return CapacityUnits(units)


def _live(uow: UnitOfWork, project: str, zone: str, reservation_id: str) -> Reservation:
    name = reservation_name(project, zone, reservation_id)
    found = reservations.find(uow, name)
    if found is None:
        raise not_found(name)
    return found


def use_of(found: Reservation, held: Mapping[str, int]) -> ReservationUse:
    return ReservationUse(found, held.get(found.reservation_key, 0) * found.units_per_chip)
