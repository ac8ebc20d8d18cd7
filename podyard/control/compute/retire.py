"""Ends a node whose budget is used up."""

from __future__ import annotations

import dataclasses

from podyard.base.errors import Code
from podyard.control.compute import queue_states
from podyard.control.compute.nodes import pass_into
from podyard.control.platform import operations
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.node import NodeRecord
from podyard.domain.operation import OperationVerb


def retire(uow: UnitOfWork, fleet: Fleet, node: NodeRecord, reason: str) -> None:
    """Stops a node with one host, and deletes any other. Its billing ends at this moment."""
    alone = node.host_count == 1 and node.queued_resource_key is None
    verb, end = (OperationVerb.STOP, "stopped") if alone else (OperationVerb.DELETE, "deleted")
    seconds = fleet.timings.stop_seconds if alone else fleet.timings.delete_seconds
    operations.fail(
        uow, node.pending_operation, Code.CANCELLED, f"The operation was cancelled: {reason}"
    )
    pending = operations.begin(uow, operations.of_node(node), verb).operation_id
    changed = dataclasses.replace(node, pending_operation=pending, state_reason=reason)
    pass_into(uow, node, verb.value, end, seconds, reason, changed)
    if node.queued_resource_key is not None:
        queue_states.settle(uow, node.queued_resource_key)
