"""Data disks of nodes: which modes a node may have them in, and that no two nodes write to one
disk."""

from __future__ import annotations

from collections.abc import Iterator

from podyard.base.errors import failed_precondition, invalid_field
from podyard.db.compute import nodes as node_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import NodeSpec
from podyard.hardware.accelerator_types import AcceleratorType, kind_of

READ_ONLY = "READ_ONLY"


def check_modes(kind: AcceleratorType, spec: NodeSpec) -> None:
    """Raises INVALID_ARGUMENT for a disk without a name or named twice, and for one that several
    hosts would write to:
    a disk without a mode is READ_WRITE, which only a node with one host may have (docs: attach
    durable block storage).
    """
    seen = set()
    for disk, mode in _disks(spec):
        if disk in seen:
            raise invalid_field(f"data disk {disk!r} is listed twice", "data_disks")
        seen.add(disk)
        if mode != READ_ONLY and not kind.is_single_host:
            raise invalid_field(
                f"data disk {disk!r}: {kind.name} has {kind.host_count} hosts, so its disks must "
                "be READ_ONLY",
                "data_disks",
            )


def check(uow: UnitOfWork, project: str, node_key: str | None, spec: NodeSpec) -> None:
    """Also raises FAILED_PRECONDITION when a disk is attached to another node and one of the two
    writes to it.

    `node_key`: the node that has the disks, None before there is one. The caller's unit changes the
    node afterwards, so that two that attach one disk at the same time both see it free only where
    they hold no common row; creations hold the project's.
    """
    check_modes(kind_of(spec.accelerator_type, spec.topology), spec)
    wanted = dict(_disks(spec))
    if not wanted:
        return
    for node in node_rows.live(uow, project):
        if node.node_key == node_key:
            continue
        for disk, mode in _disks(node.spec):
            if disk in wanted and not mode == wanted[disk] == READ_ONLY:
                raise failed_precondition(
                    f"The disk resource '{disk}' is already being used by '{node.name}', and one "
                    "of them writes to it"
                )


def names_of(spec: NodeSpec) -> list[str]:
    """`projects/P/zones/Z/disks/D` of each disk of a node."""
    return [name for name, _ in _disks(spec)]


def _disks(spec: NodeSpec) -> Iterator[tuple[str, str | None]]:
    for index, disk in enumerate(spec.data_disks):
        if not disk.source:
            raise invalid_field(
                f"dataDisks[{index}].sourceDisk is required", f"data_disks[{index}].source_disk"
            )
        yield _short(disk.source), disk.mode


def _short(source_disk: str) -> str:
    """`projects/P/zones/Z/disks/D`, however much of its URL a client wrote."""
    _, found, rest = source_disk.partition("projects/")
    return found + rest if found else source_disk
