"""Counts against quotas."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import bindparam, func, select

from podyard.base.errors import Code
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import node_counts
from podyard.db.tables.queue import queued_resources
from podyard.domain.node import UsageClass
from podyard.hardware.accelerator_types import AcceleratorType, kind_of

NodeKind = tuple[str, str, str, str, str]  # project, usage class, zone, accelerator type, topology

_COUNTS = select(node_counts).order_by(*node_counts.primary_key.columns)
_ALONE = select(node_counts).where(
    node_counts.c.project == bindparam("project"),
    node_counts.c.usage_class == bindparam("usage_class"),
)
_QUEUED = select(queued_resources.c.zone, queued_resources.c.spec).where(
    queued_resources.c.project == bindparam("project"),
    queued_resources.c.usage_class == bindparam("usage_class"),
    queued_resources.c.live_name.is_not(None),
    # Refused for quota or budget, and listed with the reason only.
    func.coalesce(queued_resources.c.error_code, 0) != int(Code.RESOURCE_EXHAUSTED),
)


def holdings(
    uow: UnitOfWork, project: str, usage_class: UsageClass
) -> Iterator[tuple[str, AcceleratorType, int]]:
    """(zone, type, how many) of everything that counts."""
    of = {"project": project, "usage_class": usage_class.value}
    for row in uow.execute(_ALONE, of):
        yield row.zone, kind_of(row.accelerator_type, row.topology), row.nodes
    for row in uow.execute(_QUEUED, of):
        for node in row.spec["nodes"]:
            yield row.zone, kind_of(node["spec"]["accelerator_type"], node["spec"]["topology"]), 1


def chips_held(uow: UnitOfWork, project: str) -> int:
    """The chips of everything that counts, in all zones and usage classes."""
    held = (found for usage_class in UsageClass for found in holdings(uow, project, usage_class))
    return sum(kind.chip_count * count for _, kind, count in held)


def node_counts_kept(uow: UnitOfWork) -> dict[NodeKind, int]:
    """The counts of live nodes that are kept, those of queued resources aside."""
    return {
        (row.project, row.usage_class, row.zone, row.accelerator_type, row.topology): row.nodes
        for row in uow.execute(_COUNTS)
    }
