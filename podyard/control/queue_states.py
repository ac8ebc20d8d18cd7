"""What becomes of a queued resource when one of its nodes changes. Called in the unit that changes the node.

It moves the queued resource only. What has to be done to its nodes is left to timers (`queuedResource.repair`,
`queuedResource.restart`), which are due at once and which `queued_resources.on_timer` carries out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select, update

from podyard.base.errors import Code
from podyard.control import operations
from podyard.db import nodes as node_rows
from podyard.db import queued_resources as rows
from podyard.db import timers
from podyard.db.tables import timers as timers_table
from podyard.db.tables_queue import queued_resources
from podyard.db.transition import QUEUED_RESOURCES, move_row
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import NODE_STATES_LOST

Row = Mapping[str, Any]


def settle(uow: UnitOfWork, queued_resource_key: str) -> None:
    """Looks at the nodes, and moves the queued resource to the state that follows from theirs."""
    row = rows.row_by_key(uow, queued_resource_key)
    assert row is not None, queued_resource_key
    found = node_rows.of_queued_resource(uow, queued_resource_key)
    if row["state"] in ("PROVISIONING", "ACTIVE"):
        _settle_running(uow, row, found)
    elif row["state"] == "SUSPENDING":
        _settle_suspending(uow, row, found)
    elif row["state"] == "DELETING" and not found:
        frozen = rows.frozen(uow, row)
        move_row(uow, QUEUED_RESOURCES, row, "deleted", reason="deleted", live_name=None, pending_operation=None)
        timers.drop(uow, queued_resource_key)
        operations.succeed(uow, row["pending_operation"], frozen)


def remind(uow: UnitOfWork, kind: str, row: Row, seconds: float = 0.0) -> None:
    """Sets a timer of the queued resource, unless one of this kind is set already."""
    key = row["queued_resource_key"]
    mine = select(timers_table.c.timer_id).where(timers_table.c.resource_key == key, timers_table.c.kind == kind)
    if uow.first(mine) is None:
        timers.put(uow, kind, key, 0, uow.now.plus_seconds(seconds))


def _settle_running(uow: UnitOfWork, row: Row, found: Sequence[Row]) -> None:
    spec = rows.to_spec(row["spec"])
    states = [node["state"] for node in found]
    lost = [state for state in states if state in NODE_STATES_LOST]
    if len(found) < len(spec.nodes) or "DELETING" in states:
        _suspend(uow, row, found, "USER", "a node of it was deleted")
    elif "TERMINATED" in states:
        _suspend(uow, row, found, "SERVICE", "the run time of a node of it has ended")
    elif lost and (not spec.is_multislice or len(lost) == len(states)):
        _suspend(uow, row, found, "SERVICE", f"its nodes were lost: {', '.join(lost)}")
    elif lost:
        if row["state"] == "ACTIVE":
            move_row(uow, QUEUED_RESOURCES, row, "repair", reason="a slice was lost, and is made anew")
        remind(uow, "queuedResource.repair", row)
    elif row["state"] == "PROVISIONING" and all(state == "READY" for state in states):
        if row["repaired"] and spec.is_multislice:
            remind(uow, "queuedResource.restart", row)
        else:
            _activate(uow, row)


def maintain(uow: UnitOfWork, node: Row) -> None:
    """A node of it is in maintenance: it is ACTIVE again when all of its nodes are READY."""
    row = rows.row_by_key(uow, node["queued_resource_key"])
    assert row is not None, node["queued_resource_key"]
    repaired = [*row["repaired"], node["node_key"]]
    if row["state"] == "ACTIVE":
        move_row(
            uow, QUEUED_RESOURCES, row, "repair", reason=f"node {node['node_id']} is maintained", repaired=repaired
        )
    elif row["state"] == "PROVISIONING":
        mine = queued_resources.c.queued_resource_key == row["queued_resource_key"]
        uow.execute(update(queued_resources).where(mine).values(repaired=repaired))


def _activate(uow: UnitOfWork, row: Row) -> None:
    """All of its nodes are READY."""
    values: dict[str, Any] = {"activated": row["activated"] or uow.now, "pending_operation": None, "repaired": []}
    moved = move_row(uow, QUEUED_RESOURCES, row, "activate", reason="all of its nodes are READY", **values)
    operations.succeed(uow, row["pending_operation"], rows.frozen(uow, moved))


def _suspend(uow: UnitOfWork, row: Row, found: Sequence[Row], initiator: str, reason: str) -> None:
    operations.fail(uow, row["pending_operation"], Code.CANCELLED, f"The queued resource is suspended: {reason}")
    values: dict[str, Any] = {"state_initiator": initiator, "pending_operation": None, "repaired": []}
    _settle_suspending(uow, move_row(uow, QUEUED_RESOURCES, row, "suspend", reason=reason, **values), found)


def _settle_suspending(uow: UnitOfWork, row: Row, found: Sequence[Row]) -> None:
    """It is SUSPENDED once none of its nodes lives or holds chips. Nodes that were taken back stay listed."""
    holding = node_rows.with_slice(uow, [node["node_key"] for node in found])
    if not holding and all(node["state"] in NODE_STATES_LOST for node in found):
        move_row(uow, QUEUED_RESOURCES, row, "suspended", reason="all of its nodes are over")
