"""Reservations: the right of a project to chips of one generation in one zone, for a time."""

from __future__ import annotations

import dataclasses
import re
from enum import StrEnum

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.domain.machine import Machine
from podyard.hardware.generations import GENERATIONS


class ReservationState(StrEnum):
    APPROVED = "APPROVED"
    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    GONE = "GONE"


class CapacityUnits(StrEnum):
    CORES = "CORES"
    CHIPS = "CHIPS"


# Numbers: google.cloud.tpu.v2alpha1.Reservation.State has APPROVED 3, ACTIVE 5, EXPIRED 7.
# PROVISIONING and DEPROVISIONING take no time here, and nothing FAILs.
RESERVATION = Machine(
    "reservation",
    ReservationState.APPROVED,
    {
        ReservationState.APPROVED: {
            "activate": ReservationState.ACTIVE,
            "delete": ReservationState.GONE,
        },
        ReservationState.ACTIVE: {
            "expire": ReservationState.EXPIRED,
            "delete": ReservationState.GONE,
        },
        ReservationState.EXPIRED: {"delete": ReservationState.GONE},
        ReservationState.GONE: {},
    },
)

ANY = "-"  # `reservations/-`: any reservation of the zone


@dataclasses.dataclass(frozen=True, slots=True)
class Reservation:
    """`size` counts `units`, from `starts` (None: at once) until `ends` (None: always). `live_name`
    is its name while
    it is, and None once it is gone."""

    reservation_key: str
    project: str
    zone: str
    reservation_id: str
    live_name: str | None
    state: ReservationState
    version: int
    generation: str
    size: int
    units: CapacityUnits
    starts: PlatformTime | None
    ends: PlatformTime | None
    created: PlatformTime

    @property
    def name(self) -> str:
        return reservation_name(self.project, self.zone, self.reservation_id)

    @property
    def units_per_chip(self) -> int:
        return (
            GENERATIONS[self.generation].cores_per_chip if self.units is CapacityUnits.CORES else 1
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ReservationUse:
    """A reservation, and how many of its units nodes hold: they do while they hold chips."""

    reservation: Reservation
    used: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReservationRoom:
    """An ACTIVE reservation, as a scheduling cycle knows it: how many chips more may be placed
    under it."""

    reservation_key: str
    project: str
    zone: str
    name: str
    generation: str
    chips: int
    ends: PlatformTime | None


def reservation_name(project: str, zone: str, reservation_id: str) -> str:
    return f"projects/{project}/locations/{zone}/reservations/{reservation_id}"


def check_asked(asked: str, project: str, zone: str) -> None:
    """Raises INVALID_ARGUMENT for what names no reservation of the project and zone: nothing else
    can ever serve."""
    prefix = reservation_name(project, zone, "")
    if asked and (
        not asked.startswith(prefix) or re.fullmatch(r"[^/]+", asked[len(prefix) :]) is None
    ):
        raise invalid(
            f"reservationName {asked!r}: use {prefix}RESERVATION or {prefix}{ANY}",
            "reservationName",
        )


def is_named(asked: str, name: str) -> bool:
    """Return whether the reservation `name` is one that a request for `asked` may use: it is named,
    or any may be used."""
    return asked in ("", name) or asked.rsplit("/", 1)[-1] == ANY
