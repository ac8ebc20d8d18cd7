"""The frozen snapshot that a scheduling cycle decides from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from podyard.db import queued_resources as queue_rows
from podyard.db.tables_compute import nodes, slices
from podyard.db.tables_queue import queued_resources, reservations
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, FleetSnapshot, PlacementRequest
from podyard.domain.node import NODE_STATES_WAITING_FOR_SLICE, UsageClass, kind_of
from podyard.domain.reservation import ReservationRoom, reservation_name
from podyard.domain.slice import SliceRecord, chips_from_text
from podyard.hardware.generations import GENERATIONS

DEFAULT_PRIORITY = 0


def load(uow: UnitOfWork, fleet: Fleet) -> FleetSnapshot:
    held = uow.all(select(slices).order_by(slices.c.slice_id))
    placed = {row["node_key"] for row in held}
    query = select(nodes).where(nodes.c.state.in_(sorted(NODE_STATES_WAITING_FOR_SLICE)))
    waiting = [row for row in uow.all(query.order_by(nodes.c.created)) if row["node_key"] not in placed]
    return FleetSnapshot(
        fleet=fleet,
        slices=tuple(
            SliceRecord(row["slice_id"], row["node_key"], row["pod_id"], chips_from_text(row["chips"])) for row in held
        ),
        waiting=(*map(_node_request, waiting), *_queued_requests(uow)),
        reservations=_reservations(uow),
    )


def anything_waits(uow: UnitOfWork) -> bool:
    """Whether a cycle has anything to decide: cheap enough to ask at every tick."""
    placed = select(slices.c.node_key)
    query = select(nodes.c.node_key).where(
        nodes.c.state.in_(sorted(NODE_STATES_WAITING_FOR_SLICE)), nodes.c.node_key.not_in(placed)
    )
    queued = select(queued_resources.c.version).where(queued_resources.c.state == "WAITING_FOR_RESOURCES")
    return uow.first(query.limit(1)) is not None or uow.first(queued.limit(1)) is not None


def reserved_chips(uow: UnitOfWork) -> dict[str, int]:
    """Chips that nodes hold under each reservation."""
    query = select(nodes.c.reservation_key, slices.c.chips).join(slices, slices.c.node_key == nodes.c.node_key)
    used: dict[str, int] = {}
    for row in uow.all(query.where(nodes.c.reservation_key.is_not(None))):
        used[row["reservation_key"]] = used.get(row["reservation_key"], 0) + chips_from_text(row["chips"]).bit_count()
    return used


def units_per_chip(row: Mapping[str, Any]) -> int:
    """Of a reservation: how many of its units one chip is."""
    return GENERATIONS[row["generation"]].cores_per_chip if row["units"] == "CORES" else 1


def _node_request(row: Mapping[str, Any]) -> PlacementRequest:
    return PlacementRequest(
        node_key=row["node_key"],
        version=row["version"],
        project=row["project"],
        zone=row["zone"],
        accelerator_type=kind_of(row["accelerator_type"], row["topology"]),
        usage_class=UsageClass(row["usage_class"]),
        priority=DEFAULT_PRIORITY,
        created=row["created"],
        # A slice that is made anew waits; a node that its user starts again does not.
        queued=row["queued_resource_key"] is not None and row["state"] == "CREATING",
        reservation_name=row["spec"].get("reservation_name", ""),
        wait_reason=row["wait_reason"],
    )


def _queued_requests(uow: UnitOfWork) -> list[PlacementRequest]:
    """One request for each node of the queued resources whose turn it may be. One that still has nodes from before
    its reset waits until they are gone."""
    old = select(nodes.c.queued_resource_key).where(
        nodes.c.queued_resource_key.is_not(None), nodes.c.live_name.is_not(None)
    )
    query = select(queued_resources).where(
        queued_resources.c.state == "WAITING_FOR_RESOURCES", queued_resources.c.queued_resource_key.not_in(old)
    )
    requests = []
    for row in uow.all(query.order_by(queued_resources.c.created, queued_resources.c.queued_resource_key)):
        spec = queue_rows.to_spec(row["spec"])
        for position, node in enumerate(spec.nodes):
            requests.append(
                PlacementRequest(
                    node_key=f"{row['queued_resource_key']}/{position:06d}",
                    version=row["version"],
                    project=row["project"],
                    zone=row["zone"],
                    accelerator_type=kind_of(node.spec.accelerator_type, node.spec.topology),
                    usage_class=UsageClass(row["usage_class"]),
                    priority=DEFAULT_PRIORITY,
                    created=row["created"],
                    group=row["queued_resource_key"],
                    not_before=row["valid_after"],
                    queued=True,
                    reservation_name=node.spec.reservation_name,
                    min_duration_seconds=spec.min_duration_seconds,
                    wait_reason=row["wait_reason"],
                )
            )
    return requests


def _reservations(uow: UnitOfWork) -> tuple[ReservationRoom, ...]:
    query = select(reservations).where(reservations.c.state == "ACTIVE")
    found = uow.all(query.order_by(reservations.c.created, reservations.c.reservation_key))
    used = reserved_chips(uow) if found else {}
    return tuple(
        ReservationRoom(
            reservation_key=row["reservation_key"],
            project=row["project"],
            zone=row["zone"],
            name=reservation_name(row["project"], row["zone"], row["reservation_id"]),
            generation=row["generation"],
            chips=row["size"] // units_per_chip(row) - used.get(row["reservation_key"], 0),
            ends=row["ends"],
        )
        for row in found
    )
