"""The state of a queued resource after one of its nodes has changed. Called in the unit that
changes the node.

It moves the queued resource only. What has to be done to its nodes is left to timers
(`queuedResource.repair`, `queuedResource.restart`), which are due at once and which
`queued_resources.on_timer` carries out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podyard.base.errors import Code
from podyard.control.platform import operations
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import queued_resources as rows
from podyard.db.compute import slices
from podyard.db.store import timers
from podyard.db.store.transition import move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import NODE_STATES_LOST, NodeRecord, NodeState
from podyard.domain.queued_resource import QueuedResourceRecord, QueuedResourceState


def settle(uow: UnitOfWork, queued_resource_key: str) -> None:
    """Looks at the nodes, and moves the queued resource to the state that follows from theirs."""
    queued = rows.find_by_key(uow, queued_resource_key)
    assert queued is not None, queued_resource_key
    found = node_rows.of_queued_resource(uow, queued_resource_key)
    if queued.state in (QueuedResourceState.PROVISIONING, QueuedResourceState.ACTIVE):
        _settle_running(uow, queued, found)
    elif queued.state is QueuedResourceState.SUSPENDING:
        _settle_suspending(uow, queued, found)
    elif queued.state is QueuedResourceState.DELETING and not found:
        frozen = rows.freeze(uow, queued)
        move(
            uow,
            queued,
            "deleted",
            reason="deleted",
            changed=replace(queued, live_name=None, pending_operation=None),
        )
        timers.drop(uow, queued_resource_key)
        operations.succeed(uow, queued.pending_operation, frozen)


def remind(uow: UnitOfWork, kind: str, queued: QueuedResourceRecord, seconds: float = 0.0) -> None:
    """Sets a timer of the queued resource, unless one of this kind is set already."""
    key = queued.queued_resource_key
    if not timers.is_set(uow, kind, key):
        timers.put(uow, kind, key, 0, uow.now.plus_seconds(seconds))


def _settle_running(
    uow: UnitOfWork, queued: QueuedResourceRecord, found: Sequence[NodeRecord]
) -> None:
    spec = queued.spec
    states = [node.state for node in found]
    lost = [state for state in states if state in NODE_STATES_LOST]
    if len(found) < len(spec.nodes) or NodeState.DELETING in states:
        _suspend(uow, queued, found, "USER", "a node of it was deleted")
    elif NodeState.TERMINATED in states:
        _suspend(uow, queued, found, "SERVICE", "the run time of a node of it has ended")
    elif lost and (not spec.is_multislice or len(lost) == len(states)):
        _suspend(uow, queued, found, "SERVICE", f"its nodes were lost: {', '.join(lost)}")
    elif lost:
        if queued.state is QueuedResourceState.ACTIVE:
            move(uow, queued, "repair", reason="a slice was lost, and is created again")
        remind(uow, "queuedResource.repair", queued)
    elif queued.state is QueuedResourceState.PROVISIONING and all(
        state is NodeState.READY for state in states
    ):
        if queued.repaired and spec.is_multislice:
            remind(uow, "queuedResource.restart", queued)
        else:
            _activate(uow, queued)


def maintain(uow: UnitOfWork, node: NodeRecord) -> None:
    """A node of it is in maintenance: it is ACTIVE again when all of its nodes are READY."""
    queued = (
        None
        if node.queued_resource_key is None
        else rows.find_by_key(uow, node.queued_resource_key)
    )
    assert queued is not None, node.queued_resource_key
    changed = replace(queued, repaired=[*queued.repaired, node.node_key])
    if queued.state is QueuedResourceState.ACTIVE:
        move(uow, queued, "repair", reason=f"node {node.node_id} is maintained", changed=changed)
    elif queued.state is QueuedResourceState.PROVISIONING:
        store(uow, queued, changed)


def _activate(uow: UnitOfWork, queued: QueuedResourceRecord) -> None:
    """All of its nodes are READY."""
    changed = replace(
        queued, activated=queued.activated or uow.now, pending_operation=None, repaired=[]
    )
    moved = move(uow, queued, "activate", reason="all of its nodes are READY", changed=changed)
    operations.succeed(uow, queued.pending_operation, rows.freeze(uow, moved))


def _suspend(
    uow: UnitOfWork,
    queued: QueuedResourceRecord,
    found: Sequence[NodeRecord],
    initiator: str,
    reason: str,
) -> None:
    operations.fail(
        uow, queued.pending_operation, Code.CANCELLED, f"The queued resource is suspended: {reason}"
    )
    changed = replace(queued, state_initiator=initiator, pending_operation=None, repaired=[])
    _settle_suspending(uow, move(uow, queued, "suspend", reason=reason, changed=changed), found)


def _settle_suspending(
    uow: UnitOfWork, queued: QueuedResourceRecord, found: Sequence[NodeRecord]
) -> None:
    """It is SUSPENDED once none of its nodes lives or holds chips. Nodes that were taken back stay
    listed."""
    holding = slices.ids_of(uow, [node.node_key for node in found])
    if not holding and all(node.state in NODE_STATES_LOST for node in found):
        move(uow, queued, "suspended", reason="all of its nodes are over")
