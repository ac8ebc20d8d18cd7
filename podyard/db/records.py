"""Records to the columns of their rows: the fields of a record are the columns of its table, in the same names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from podyard.domain.job import Job
from podyard.domain.node import NodeRecord, NodeSpec, UpcomingMaintenance
from podyard.domain.queued_resource import QueuedResourceRecord, QueuedResourceSpec

QUEUED_SPEC_TIMES = ("valid_after", "valid_until", "termination_time")


def columns(record: Any) -> dict[str, Any]:
    """All columns of a record's row."""
    return {field.name: _column(record, field.name) for field in dataclasses.fields(record)}


def changed_columns(before: Any, after: Any) -> dict[str, Any]:
    """The columns in which two states of a record differ, as they are after."""
    names = (field.name for field in dataclasses.fields(after))
    return {name: _column(after, name) for name in names if _differ(getattr(before, name), getattr(after, name))}


def from_queued_spec(spec: QueuedResourceSpec) -> dict[str, Any]:
    """As JSON."""
    data = dataclasses.asdict(spec)
    for name in QUEUED_SPEC_TIMES:
        data[name] = data[name]["nanos"] if data[name] else None
    return data


def from_node_spec(spec: NodeSpec) -> dict[str, Any]:
    # Not `asdict`, which copies each label and script: what the spec holds is JSON already, and nobody changes it.
    return {name: getattr(spec, name) for name in NodeSpec.__dataclass_fields__}


def _from_maintenance(upcoming: UpcomingMaintenance | None) -> dict[str, Any] | None:
    return None if upcoming is None else dataclasses.asdict(upcoming)


def _differ(before: object, after: object) -> bool:
    return before is not after and before != after


def _column(record: Any, name: str) -> Any:
    value = getattr(record, name)
    write = _WRITERS.get((type(record), name))
    if write is not None:
        return write(value)
    return value.value if isinstance(value, StrEnum) else value


# Fields that are no plain values.
_WRITERS: Mapping[tuple[type[Any], str], Callable[[Any], Any]] = {
    (Job, "spec"): dataclasses.asdict,
    (NodeRecord, "spec"): from_node_spec,
    (NodeRecord, "upcoming_maintenance"): _from_maintenance,
    (QueuedResourceRecord, "spec"): from_queued_spec,
}
