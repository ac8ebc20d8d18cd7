"""Slices, as records: which chips of which pod a node has while it is placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select

from podyard.db.tables_compute import slices
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.slice import PlacedSlice, chips_from_text, chips_text

_OF_NODE = select(slices).where(slices.c.node_key == bindparam("key"))
_ALL = select(slices).order_by(slices.c.slice_id)
_ID_OF = select(slices.c.slice_id).where(slices.c.node_key == bindparam("key"))
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


def id_of(uow: UnitOfWork, node_key: str) -> str | None:
    """The id of the slice of a node, if it has chips."""
    slice_id: str | None = uow.execute(_ID_OF, {"key": node_key}).scalar()
    return slice_id


def ids_of(uow: UnitOfWork, node_keys: Sequence[str]) -> dict[str, str]:
    """The id of each slice that the nodes have, by node."""
    query = select(slices.c.node_key, slices.c.slice_id).where(slices.c.node_key.in_(node_keys))
    return {row["node_key"]: row["slice_id"] for row in uow.all(query)}


def release(uow: UnitOfWork, node_key: str) -> None:
    uow.execute(_RELEASE, {"key": node_key})


def _record(row: Mapping[str, Any]) -> PlacedSlice:
    parsed = {"chips": chips_from_text(row["chips"]), "origin": tuple(row["origin"]), "shape": tuple(row["shape"])}
    return PlacedSlice(**{**row, **parsed})
