"""Records to the columns of their rows: the fields of a record are the columns of its table, in the
same names."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

from podyard.base import error_details
from podyard.base.clock import PlatformTime
from podyard.base.spelling import camel_case
from podyard.domain.host_record import HostRecord
from podyard.domain.job import Job, JobSpec
from podyard.domain.node import Node, NodeRecord, NodeSpec, Symptom, UpcomingMaintenance
from podyard.domain.operation import Operation
from podyard.domain.queued_resource import QueuedResourceRecord, QueuedResourceSpec
from podyard.domain.stored import StoredObject, Upload

_Writer = tuple[str, Callable[[Any], Any]]
QUEUED_SPEC_TIMES = ("valid_after", "valid_until", "termination_time")


def columns(record: Any) -> dict[str, Any]:
    """All columns of a record's row."""
    names, read, writers = _fields(record.__class__)
    found = {}
    for name, value in zip(names, read(record), strict=True):
        found[name] = value.value if isinstance(value, StrEnum) else value
    for name, write in writers:
        found[name] = write(found[name])
    return found


def changed_columns(before: Any, after: Any) -> dict[str, Any]:
    """The columns in which two states of a record differ, as they are after."""
    names, read, writers = _fields(after.__class__)
    changed = {}
    for name, earlier, value in zip(names, read(before), read(after), strict=True):
        if value is not earlier and value != earlier:
            changed[name] = value.value if isinstance(value, StrEnum) else value
    for name, write in writers:
        if name in changed:
            changed[name] = write(changed[name])
    return changed


# Fields of stored documents that are younger than their tables. They are left out where they are as
# usual: a loop or an agent's API of the release before, next to a new one, knows no such field, and
# refuses it.
_LATER_JOB_FIELDS = ("num_nodes", "next_type", "former_types")


def from_job_spec(spec: JobSpec) -> dict[str, Any]:
    data = dataclasses.asdict(spec)
    for name in _LATER_JOB_FIELDS:
        if getattr(spec, name) == JobSpec.__dataclass_fields__[name].default:
            del data[name]
    return data


def from_queued_spec(spec: QueuedResourceSpec) -> dict[str, Any]:
    """As JSON."""
    data = dataclasses.asdict(spec)
    for name in QUEUED_SPEC_TIMES:
        data[name] = data[name]["nanos"] if data[name] else None
    return data


def from_node_spec(spec: NodeSpec) -> dict[str, Any]:
    # Not `asdict`, which copies each label and script: what the spec holds is JSON already, and
    # nobody changes it.
    return {name: getattr(spec, name) for name in NodeSpec.__dataclass_fields__}


def _from_symptoms(symptoms: Sequence[Symptom]) -> list[dict[str, str]]:
    return [
        {camel_case(name): value for name, value in symptom._asdict().items()}
        for symptom in symptoms
    ]


def _from_maintenance(upcoming: UpcomingMaintenance | None) -> dict[str, Any] | None:
    return None if upcoming is None else dataclasses.asdict(upcoming)


def _nanos(moment: PlatformTime | None) -> int | None:
    return None if moment is None else moment.nanos


@cache
def _fields(
    kind: type,
) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], Sequence[_Writer]]:
    """The fields of a type of record, what reads them all at once, and the writers of those that
    are not plain."""
    names = tuple(field.name for field in dataclasses.fields(kind))
    writers = [(name, _WRITERS[kind, name]) for name in names if (kind, name) in _WRITERS]
    return names, operator.attrgetter(*names), writers


# Fields that are no plain values.
_WRITERS: Mapping[tuple[type[Any], str], Callable[[Any], Any]] = {
    (Job, "spec"): from_job_spec,
    (HostRecord, "programs"): lambda modules: [dataclasses.asdict(module) for module in modules],
    (Operation, "error_details"): lambda details: [
        error_details.to_json(detail) for detail in details
    ],
    (NodeRecord, "spec"): from_node_spec,
    (NodeRecord, "symptoms"): _from_symptoms,
    (NodeRecord, "upcoming_maintenance"): _from_maintenance,
    # As an operation keeps it.
    (Node, "spec"): from_node_spec,
    (Node, "symptoms"): _from_symptoms,
    (Node, "upcoming_maintenance"): _from_maintenance,
    (Node, "hosts"): lambda hosts: [columns(host) for host in hosts],
    (Node, "created"): _nanos,
    (Node, "ready_since"): _nanos,
    (Node, "termination"): _nanos,
    (QueuedResourceRecord, "spec"): from_queued_spec,
    (StoredObject, "fields"): dataclasses.asdict,
    (Upload, "fields"): dataclasses.asdict,
    (Upload, "preconditions"): dataclasses.asdict,
}
