"""Slices, as records: which chips of which pod a node has while it is placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, null, select

from podyard.base.clock import PlatformTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes, past_slices, slices
from podyard.domain.node import Road, UsageClass, name_on
from podyard.domain.slice import HeldChips, PlacedSlice, SliceOfNode, chips_from_text, chips_text
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
_HELD = select(slices.c.pod_id, slices.c.chips, nodes.c.project).join(
    nodes, nodes.c.node_key == slices.c.node_key
)
_OF_NODES = (
    nodes.c.project, nodes.c.zone, nodes.c.node_id, nodes.c.created_by, nodes.c.accelerator_type,
    nodes.c.topology,
    nodes.c.usage_class, nodes.c.road,
)  # fmt: skip
_WITH_NODES = select(
    slices.c.slice_id,
    slices.c.pod_id,
    slices.c.chips,
    slices.c.created.label("placed"),
    nodes.c.reclaim_at,
    *_OF_NODES,
).join_from(slices, nodes, nodes.c.node_key == slices.c.node_key)
_PAST = (
    select(
        past_slices.c.slice_id,
        past_slices.c.pod_id,
        past_slices.c.chips,
        past_slices.c.placed,
        null().label("reclaim_at"),
        *_OF_NODES,
    )
    .join_from(past_slices, nodes, nodes.c.node_key == past_slices.c.node_key)
    .where(
        past_slices.c.pod_id == bindparam("pod"),
        past_slices.c.placed <= bindparam("at", type_=past_slices.c.placed.type),
        past_slices.c.released > bindparam("at", type_=past_slices.c.released.type),
    )
)
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
    """Return what every slice of a pod or (None) of all pods holds, in no order."""
    query = _HELD if pod_id is None else _HELD.where(slices.c.pod_id == pod_id)
    return [
        HeldChips(row.pod_id, row.project, chips_from_text(row.chips)) for row in uow.execute(query)
    ]


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


def with_nodes(uow: UnitOfWork, pod_id: str | None = None) -> list[SliceOfNode]:
    """Those of a pod or (None) of all pods, in no order."""
    query = _WITH_NODES if pod_id is None else _WITH_NODES.where(slices.c.pod_id == pod_id)
    return [_with_node(row) for row in uow.execute(query)]


def past_with_nodes(uow: UnitOfWork, pod_id: str, at: PlatformTime) -> list[SliceOfNode]:
    """Those of a pod that were there at a moment and have been given back since, in no order."""
    return [_with_node(row) for row in uow.execute(_PAST, {"pod": pod_id, "at": at})]


def _with_node(row: Row[Any]) -> SliceOfNode:
    return SliceOfNode(
        slice_id=row.slice_id,
        pod_id=row.pod_id,
        project=row.project,
        node=name_on(Road(row.road), row.project, row.zone, row.node_id),
        created_by=row.created_by,
        kind=kind_of(row.accelerator_type, row.topology),
        usage_class=UsageClass(row.usage_class),
        chips=chips_from_text(row.chips),
        placed=row.placed,
        reclaim=row.reclaim_at,
    )


def _record(row: Mapping[str, Any]) -> PlacedSlice:
    parsed = {
        "chips": chips_from_text(row["chips"]),
        "origin": tuple(row["origin"]),
        "shape": tuple(row["shape"]),
    }
    return PlacedSlice(**{**row, **parsed})
