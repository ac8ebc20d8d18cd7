"""The frozen snapshot that a scheduling cycle decides from."""

from __future__ import annotations

from sqlalchemy import select

from podyard.db.tables_compute import nodes, slices
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, FleetSnapshot, PlacementRequest
from podyard.domain.node import NODE_STATES_WAITING_FOR_SLICE, UsageClass, kind_of
from podyard.domain.slice import SliceRecord, chips_from_text

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
        waiting=tuple(
            PlacementRequest(
                node_key=row["node_key"],
                version=row["version"],
                project=row["project"],
                zone=row["zone"],
                accelerator_type=kind_of(row["accelerator_type"], row["topology"]),
                usage_class=UsageClass(row["usage_class"]),
                priority=DEFAULT_PRIORITY,
                created=row["created"],
            )
            for row in waiting
        ),
    )


def anything_waits(uow: UnitOfWork) -> bool:
    """Whether a cycle has anything to decide: cheap enough to ask at every tick."""
    placed = select(slices.c.node_key)
    query = select(nodes.c.node_key).where(
        nodes.c.state.in_(sorted(NODE_STATES_WAITING_FOR_SLICE)), nodes.c.node_key.not_in(placed)
    )
    return uow.first(query.limit(1)) is not None
