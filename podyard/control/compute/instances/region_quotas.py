"""Quotas of a project in a region: processors without chips, and reserved addresses."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.control.compute.instances.create import cpus_held
from podyard.control.compute.network.addresses import ADDRESSES
from podyard.control.compute.network.quotas import QuotaUse
from podyard.control.compute.network.store import Quota
from podyard.db.compute import resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.instances.instance import CPUS_PER_REGION_MAX
from podyard.domain.machine import ResourceKind


def quotas(uow: UnitOfWork, project: str, regions: Sequence[str]) -> dict[str, list[QuotaUse]]:
    """Those of each region."""
    addresses = [one.place for one in resources.of_kind(uow, project, ResourceKind.ADDRESS)]
    return {
        region: [
            QuotaUse(Quota("CPUS", CPUS_PER_REGION_MAX), cpus_held(uow, project, region)),
            QuotaUse(ADDRESSES, addresses.count(region)),
        ]
        for region in regions
    }
