"""Quotas of a project on Compute Engine: what is counted, and how much of it is there."""

from __future__ import annotations

import dataclasses

from podyard.control.compute.network import addresses, firewalls, networks
from podyard.control.compute.network.store import Quota
from podyard.db.compute import disks, resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.disk import DISKS_PER_PROJECT_MAX
from podyard.domain.machine import ResourceKind

_COUNTED = (
    (ResourceKind.NETWORK, networks.NETWORKS),
    (ResourceKind.SUBNETWORK, networks.SUBNETWORKS),
    (ResourceKind.FIREWALL, firewalls.FIREWALLS),
    (ResourceKind.ADDRESS, addresses.ADDRESSES),
)


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaUse:
    quota: Quota
    usage: int


def quotas(uow: UnitOfWork, project: str) -> list[QuotaUse]:
    uses = [QuotaUse(quota, resources.count(uow, project, kind)) for kind, quota in _COUNTED]
    disk_count = disks.count(uow, project)
    return [*uses, QuotaUse(Quota("DISKS", DISKS_PER_PROJECT_MAX), disk_count)]
