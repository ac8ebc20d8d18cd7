"""Quotas: what a project may hold at once, by region, generation and usage class. A node counts until it is deleted."""

from __future__ import annotations

from sqlalchemy import select

from podyard.base.errors import Code, PodyardError
from podyard.db.tables_compute import nodes
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, quota_kind, quota_message, quota_name, quota_units, region_of
from podyard.domain.node import UsageClass, kind_of
from podyard.hardware.accelerator_types import AcceleratorType


def used(uow: UnitOfWork, project: str, region: str, kind: AcceleratorType, usage_class: UsageClass) -> int:
    """What the project's live nodes take from the quota that a node of `kind` would count against."""
    query = select(nodes.c.zone, nodes.c.accelerator_type, nodes.c.topology).where(
        nodes.c.project == project, nodes.c.live_name.is_not(None), nodes.c.usage_class == str(usage_class)
    )
    total = 0
    for row in uow.all(query):
        other = kind_of(row["accelerator_type"], row["topology"])
        same = other.generation is kind.generation and quota_kind(other) == quota_kind(kind)
        if same and region_of(row["zone"]) == region:
            total += quota_units(other)
    return total


def check(
    uow: UnitOfWork, fleet: Fleet, project: str, zone: str, kind: AcceleratorType, usage_class: UsageClass
) -> None:
    """Raises RESOURCE_EXHAUSTED with Google's text and a QuotaFailure when the node would go beyond the limit.

    The caller holds the project's row, so that two creations cannot both take the last of it.
    """
    region = region_of(zone)
    limit = fleet.quota_limit(region, kind, usage_class)
    if used(uow, project, region, kind, usage_class) + quota_units(kind) <= limit:
        return
    name = quota_name(kind, usage_class)
    violation = {
        "subject": f"projects/{project}",
        "description": f"Quota '{name}' exhausted. Limit {limit} in region {region}",
    }
    raise PodyardError(
        Code.RESOURCE_EXHAUSTED,
        quota_message(zone, kind, usage_class, limit),
        [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}],
    )
