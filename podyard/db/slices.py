"""Slices, as records: which chips of which pod a node has while it is placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, insert, select

from podyard.base.clock import PlatformTime
from podyard.db.tables_compute import nodes, past_slices, slices
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import UsageClass
from podyard.domain.slice import HeldChips, PastSlice, PlacedSlice, chips_from_text, chips_text
from podyard.hardware.accelerator_types import kind_of

_OF_NODE = select(slices).where(slices.c.node_key == bindparam("key"))
_ALL = select(slices).order_by(slices.c.slice_id)
_ID_OF = select(slices.c.slice_id).where(slices.c.node_key == bindparam("key"))
_KEEP = insert(past_slices).from_select(
    ["slice_id", "node_key", "pod_id", "chips", "placed", "released"],
    select(
        slices.c.slice_id,
        slices.c.node_key,
        slices.c.pod_id,
        slices.c.chips,
        slices.c.created,
        bindparam("now", type_=past_slices.c.released.type),
    ).where(slices.c.node_key == bindparam("key")),
)
_HELD = select(slices.c.pod_id, slices.c.chips, nodes.c.project).join(nodes, nodes.c.node_key == slices.c.node_key)
_RELEASE = delete(slices).where(slices.c.node_key == bindparam("key"))


def add(uow: UnitOfWork, placed: PlacedSlice) -> None:
    row = {name: getattr(placed, name) for name in PlacedSlice.__dataclass_fields__}
    uow.insert(slices, {**row, "chips": chips_text(placed.chips)})


def find(uow: UnitOfWork, node_key: str) -> PlacedSlice | None:
    """The slice of a node, if it has chips."""
    row = uow.first(_OF_NODE, {"key": node_key})
    return None if row is None else _record(row)


def list_all(uow: UnitOfWork) -> list[PlacedSlice]:
    """By id."""
    return [_record(row) for row in uow.all(_ALL)]


def held(uow: UnitOfWork, pod_id: str | None = None) -> list[HeldChips]:
    """What every slice of a pod or (None) of all pods holds, in no order."""
    query = _HELD if pod_id is None else _HELD.where(slices.c.pod_id == pod_id)
    return [HeldChips(row.pod_id, row.project, chips_from_text(row.chips)) for row in uow.execute(query)]


def id_of(uow: UnitOfWork, node_key: str) -> str | None:
    """The id of the slice of a node, if it has chips."""
    slice_id: str | None = uow.execute(_ID_OF, {"key": node_key}).scalar()
    return slice_id


def ids_of(uow: UnitOfWork, node_keys: Sequence[str]) -> dict[str, str]:
    """The id of each slice that the nodes have, by node."""
    query = select(slices.c.node_key, slices.c.slice_id).where(slices.c.node_key.in_(node_keys))
    return {row["node_key"]: row["slice_id"] for row in uow.all(query)}


def release(uow: UnitOfWork, node_key: str) -> None:
    uow.execute(_KEEP, {"key": node_key, "now": uow.now})
    uow.execute(_RELEASE, {"key": node_key})


def list_past(uow: UnitOfWork, pod_id: str, at: PlatformTime) -> list[PastSlice]:
    """Slices of a pod that were there at a moment, and have been given back since, by id."""
    there = (past_slices.c.pod_id == pod_id, past_slices.c.placed <= at, past_slices.c.released > at)
    of_nodes = past_slices.join(nodes, nodes.c.node_key == past_slices.c.node_key)
    query = select(
        past_slices, nodes.c.project, nodes.c.zone, nodes.c.node_id, nodes.c.created_by, nodes.c.accelerator_type,
        nodes.c.topology, nodes.c.usage_class,
    ).select_from(of_nodes).where(*there).order_by(past_slices.c.slice_id)  # fmt: skip
    return [
        PastSlice(
            slice_id=row["slice_id"],
            place=(row["project"], row["zone"], row["node_id"]),
            created_by=row["created_by"],
            kind=kind_of(row["accelerator_type"], row["topology"]),
            usage_class=UsageClass(row["usage_class"]),
            chips=chips_from_text(row["chips"]),
            placed=row["placed"],
            released=row["released"],
        )
        for row in uow.all(query)
    ]


def _record(row: Mapping[str, Any]) -> PlacedSlice:
    parsed = {"chips": chips_from_text(row["chips"]), "origin": tuple(row["origin"]), "shape": tuple(row["shape"])}
    return PlacedSlice(**{**row, **parsed})
