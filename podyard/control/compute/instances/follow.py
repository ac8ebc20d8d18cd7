"""Consequences of a row of nodes that has become READY, or is gone: boot disks, and requests for
several instances at once."""

from __future__ import annotations

from podyard.base.errors import Code
from podyard.control.compute import nodes
from podyard.control.compute.instances import groups
from podyard.control.compute.instances.create import BULK_PREFIX
from podyard.control.platform import operations
from podyard.db.compute import disks as disk_rows
from podyard.db.compute import instances as rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.instances.instance import least_words, spec_of
from podyard.domain.node import NODE, NodeRecord, NodeState, Road
from podyard.domain.operation import OperationVerb


def follow(uow: UnitOfWork, node: NodeRecord) -> None:
    """`node`: as it stands now."""
    if node.road is not Road.COMPUTE:
        return
    of_node = rows.rows_of_node(uow, node.node_key)
    if node.state is NodeState.GONE:
        spec = spec_of(node.spec)
        names = {one.source.rpartition("/")[2] for one in spec.disks if one.auto_delete}
        if spec.boot.auto_delete:
            names |= {spec.boot.name or row.name for row in of_node}
        for name in sorted(names):
            disk = disk_rows.find(uow, node.project, node.zone, name)
            if disk is not None:
                disk_rows.remove(uow, disk)
    group = of_node[0].group_key or ""
    if group.startswith(BULK_PREFIX):
        _settle_bulk(uow, node, group)
    elif group and node.state is NodeState.GONE:
        groups.on_loss(uow, group)


def _settle_bulk(uow: UnitOfWork, node: NodeRecord, operation_id: str) -> None:
    operation = operations.find(uow, node.project, node.zone, operation_id)
    if operation.is_done:
        return
    spec = spec_of(node.spec)
    if rows.count_of_group(uow, operation_id) < spec.bulk_count:
        return  # this unit makes the others still
    siblings = [one.node for one in rows.of_group(uow, operation_id)]
    least = spec.least_count
    if len(siblings) >= least:
        if all(one.state is NodeState.READY for one in siblings):
            operations.succeed(uow, operation_id, None)
        return
    message, why = least_words(node, least)
    operations.fail(uow, operation_id, Code.RESOURCE_EXHAUSTED, message, [why])
    for sibling in siblings:
        if NODE.allows(sibling.state, "delete"):
            nodes.begin(uow, sibling, OperationVerb.DELETE, 0.0)
