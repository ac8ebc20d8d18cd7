"""Quotas: what a project may hold at once, by region, generation and usage class, and in chips
altogether.

A node counts until it is deleted, whatever its state. A queued resource counts with all nodes that
it asks for, from its acceptance until it is deleted, also while it is FAILED or SUSPENDED; its
nodes do not count again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.errors import Code, PodyardError, QuotaFailure
from podyard.db.access import projects
from podyard.db.compute import quotas
from podyard.db.platform import faults
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fault import Subject
from podyard.domain.fleet import (
    QUOTA_UNLIMITED,
    Fleet,
    quota_kind,
    quota_message,
    quota_name,
    quota_units,
    region_of,
)
from podyard.domain.node import UsageClass
from podyard.domain.project import Project
from podyard.hardware.accelerator_types import AcceleratorType


class QuotaExceeded(PodyardError):
    """RESOURCE_EXHAUSTED for a quota of the project."""


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaLeft:
    """The rest of a quota, in `unit` (cores or chips). `limit` None: there is none. `chips`: what
    is left of the project's own quota of chips; None: it has none."""

    limit: int | None
    left: int
    unit: str
    chips: int | None

    def allows(self, kind: AcceleratorType, count: int = 1) -> bool:
        fits = self.limit is None or count * quota_units(kind) <= self.left
        return fits and (self.chips is None or count * kind.chip_count <= self.chips)

    def with_returned(self, kind: AcceleratorType, other: AcceleratorType, count: int) -> QuotaLeft:
        """Return the quota left for nodes of `kind` once `count` nodes of type `other`, of the same
        region and usage class, are given back."""
        units = count * quota_units(other) if _share_quota(other, kind) else 0
        chips = None if self.chips is None else self.chips + count * other.chip_count
        return dataclasses.replace(self, left=self.left + units, chips=chips)


def read_left(
    uow: UnitOfWork,
    fleet: Fleet,
    project: str,
    zones: Sequence[str],
    kind: AcceleratorType,
    usage_class: UsageClass,
) -> Mapping[str, QuotaLeft]:
    """Return what a node of `kind` may still take from its quota, by zone."""
    row = projects.read(uow, project)
    chips = None
    if row is not None and row.chips_max is not None:
        chips = max(0, row.chips_max - quotas.chips_held(uow, project))
    used: dict[str, int] = {}
    found = {}
    for zone in zones:
        region = region_of(zone)
        if region not in used:
            used[region] = usage(uow, project, region, kind, usage_class)
        limit = _limit(uow, fleet, project, zone, kind, usage_class)
        bound = None if limit >= QUOTA_UNLIMITED else limit
        found[zone] = QuotaLeft(
            bound, max(0, limit - used[region]), kind.generation.name_counts, chips
        )
    return found


def usage(
    uow: UnitOfWork, project: str, region: str, kind: AcceleratorType, usage_class: UsageClass
) -> int:
    """Return what the project's nodes and queued resources take from the quota that a node of
    `kind` would count against."""
    return sum(
        count * quota_units(other)
        for zone, other, count in quotas.holdings(uow, project, usage_class)
        if _share_quota(other, kind) and region_of(zone) == region
    )


def check_all(
    uow: UnitOfWork,
    fleet: Fleet,
    owner: Project,
    zone: str,
    kinds: Sequence[AcceleratorType],
    usage_class: UsageClass,
) -> None:
    """Raises RESOURCE_EXHAUSTED with Google's text and a QuotaFailure when nodes of these types go
    beyond a limit.

    The caller holds the row of the project, so that two creations cannot both take the last of it.
    """
    project = owner.project
    _check_chips(uow, owner, sum(kind.chip_count for kind in kinds))
    region = region_of(zone)
    groups = {(kind.generation.name, quota_kind(kind)): kind for kind in kinds}
    for kind in groups.values():
        asked = sum(quota_units(other) for other in kinds if _share_quota(other, kind))
        limit = _limit(uow, fleet, project, zone, kind, usage_class)
        if usage(uow, project, region, kind, usage_class) + asked > limit:
            raise _exhausted_error(project, zone, kind, usage_class, limit)


def _check_chips(uow: UnitOfWork, owner: Project, asked: int) -> None:
    """The project's quota of chips, in all regions together."""
    if owner.chips_max is None:
        return
    held = quotas.chips_held(uow, owner.project)
    if held + asked > owner.chips_max:
        text = (
            f"project {owner.project} may hold {owner.chips_max} chips: "
            f"it holds {held}, and {asked} more were requested"
        )
        why = f"Quota 'chips' exhausted. Limit {owner.chips_max} in all regions"
        raise QuotaExceeded(
            Code.RESOURCE_EXHAUSTED, text, [QuotaFailure(f"projects/{owner.project}", why)]
        )


def _limit(
    uow: UnitOfWork,
    fleet: Fleet,
    project: str,
    zone: str,
    kind: AcceleratorType,
    usage_class: UsageClass,
) -> int:
    """The fleet's limit, or the lowest that a fault rule says instead."""
    subject = Subject(zone, kind.name, project, (), "", str(usage_class))
    limits = [
        int(rule.parameters["limit"])
        for rule in faults.standing(uow, "quota")
        if rule.matches(subject)
    ]
    return min(limits) if limits else fleet.quota_limit(region_of(zone), kind, usage_class)


def _share_quota(one: AcceleratorType, other: AcceleratorType) -> bool:
    return one.generation is other.generation and quota_kind(one) == quota_kind(other)


def _exhausted_error(
    project: str, zone: str, kind: AcceleratorType, usage_class: UsageClass, limit: int
) -> QuotaExceeded:
    name = quota_name(kind, usage_class)
    why = f"Quota '{name}' exhausted. Limit {limit} in region {region_of(zone)}"
    message = quota_message(zone, kind, usage_class, limit)
    return QuotaExceeded(
        Code.RESOURCE_EXHAUSTED, message, [QuotaFailure(f"projects/{project}", why)]
    )
