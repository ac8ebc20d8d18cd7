"""Data disks of nodes on the machines that run their hosts: contents lie on one machine, and hosts
that have the disk run there."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.errors import failed_precondition
from podyard.control.compute.disks import READ_ONLY, names_of
from podyard.db.compute import disks as rows
from podyard.db.compute import instances
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.disk import TPU_BOOT_DISK_GB, Disk, HostDisk
from podyard.domain.instances.instance import AttachedDisk, spec_of
from podyard.domain.node import NodeRecord, Road


def of_node(uow: UnitOfWork, node: NodeRecord) -> tuple[HostDisk, ...]:
    """The disks that its hosts have, in the order of its spec. A disk that nobody has made holds
    nothing and is left out."""
    return tuple(
        HostDisk(
            disk.disk_key,
            (f"persistent-disk-{number}", attached.device_name or disk.name),
            disk.size_gb,
            attached.mode == READ_ONLY,
        )
        for number, (attached, disk) in enumerate(_pairs(uow, node), start=1)
    )


def boot_gb(uow: UnitOfWork, node: NodeRecord) -> int:
    """The size of the boot disks of its hosts."""
    if node.road is not Road.COMPUTE:
        return TPU_BOOT_DISK_GB
    boot = spec_of(node.spec).boot
    name = boot.name or next((row.name for row in instances.rows_of_node(uow, node.node_key)), "")
    disk = rows.find(uow, node.project, node.zone, name)
    return boot.size_gb if disk is None else disk.size_gb


def narrow(uow: UnitOfWork, nodes: Sequence[NodeRecord], free: dict[str, int]) -> dict[str, int]:
    """The agents, of those in `free`, on which the hosts of these nodes can run: the one that has
    the contents of their disks; where none has any yet, the one with the most room. Without disks
    all. Raises FAILED_PRECONDITION when the contents are on several, or on one that is away."""
    disks = [disk for node in nodes for disk in _disks(uow, node)]
    if not disks:
        return free
    there = {disk.agent_id: disk.name for disk in disks if disk.agent_id is not None}
    away = next((agent for agent in there if agent not in free), None)
    if len(there) > 1 or away is not None:
        places = ", ".join(f"{name} on {agent}" for agent, name in sorted(there.items()))
        raise failed_precondition(
            f"the contents of the disks of node {nodes[0].node_id} are {places}: "
            + (f"{away} takes no work now" if len(there) == 1 else "they must be on one machine")
        )
    agent = next(iter(there), None) or max(sorted(free), key=lambda name: free[name], default="")
    return {agent: free[agent]} if agent else {}


def pin(uow: UnitOfWork, node: NodeRecord, agent_id: str) -> None:
    """Note that the contents of the node's disks are on this agent from now on."""
    for disk in _disks(uow, node):
        if disk.agent_id is None:
            rows.pin(uow, disk.disk_key, agent_id)


def list_removed(uow: UnitOfWork, disk_keys: Sequence[str]) -> list[str]:
    """Return which of the disks are deleted: their contents may go."""
    return sorted(set(disk_keys) - rows.present(uow, disk_keys)) if disk_keys else []


def _disks(uow: UnitOfWork, node: NodeRecord) -> list[Disk]:
    return [disk for _, disk in _pairs(uow, node)]


def _pairs(uow: UnitOfWork, node: NodeRecord) -> list[tuple[AttachedDisk, Disk]]:
    """Data disks as they are attached, with their records. Boot disks are boxes."""
    if node.road is Road.COMPUTE:
        wanted: Sequence[AttachedDisk] = spec_of(node.spec).disks
    else:
        paths = zip(names_of(node.spec), node.spec.data_disks, strict=True)
        wanted = [AttachedDisk(path, disk.mode or "READ_WRITE") for path, disk in paths]
    if not wanted:
        return []
    known = {disk.path: disk for disk in rows.of_project(uow, node.project)}
    return [(one, known[one.source]) for one in wanted if one.source in known]
