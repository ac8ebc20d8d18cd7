"""Inputs of metering: the usage events of billable resources."""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Select,
    Text,
    bindparam,
    cast,
    func,
    literal,
    select,
    text,
    type_coerce,
    union,
)

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import usage_events
from podyard.db.tables.compute import disks, nodes
from podyard.db.tables.storage import buckets
from podyard.domain.node import BILLABLE_NODE_STATES, UsageClass
from podyard.domain.usage import BilledKind, BilledResource, LabelPeriod, UsageEvent

EVENTS_AT_ONCE = 10_000  # of a long history, in memory
KEYS_AT_ONCE = 500  # resources in one query: below every database's limit of parameters

_E = usage_events.c
# each upload is an event: where storage is not charged, they need not be read
_OF_NODES = _E.kind.is_(None)
_OF_PROJECT = _E.project == bindparam("project")
# The first event of a resource says what it is, and others say what labels it has from then on:
# these are few, and have an index of their own.
_FACTS = (
    select(
        _E.resource_key,
        _E.resource_name,
        _E.zone,
        _E.accelerator_type,
        _E.usage_class,
        type_coerce(_E.at, BigInteger),
        cast(_E.labels, Text),
        _E.created_by,
        _E.bills_hosts,
        _E.kind,
    )
    .where(_OF_PROJECT, _E.labels.is_not(None))
    .order_by(_E.resource_key, _E.resource_seq)
)
AS_EVENT = (  # its fields
    _E.event_id,
    _E.resource_key,
    _E.resource_seq,
    _E.state,
    _E.at,
    func.coalesce(_E.bytes, 0).label("bytes"),
    func.coalesce(_E.operations, 0).label("operations"),
)
_EVENTS = (
    select(*AS_EVENT)
    .where(_OF_PROJECT)
    .order_by(_E.resource_key, _E.resource_seq)
    .execution_options(yield_per=EVENTS_AT_ONCE)
)
_HISTORIES = _EVENTS.with_only_columns(*AS_EVENT[1:])
_TOLD = select(_E.event_id, _E.labels, _E.created_by).where(
    _E.event_id.in_(bindparam("events", expanding=True)), _E.labels.is_not(None)
)
_LAST_VERSION = select(func.max(_E.resource_seq)).where(_E.resource_key == bindparam("key"))
_KNOWN = select(_E.seq).where(_E.event_id == bindparam("event"))
_FIRST_USE = select(func.min(_E.at)).where(_OF_PROJECT)
_LAST_SEQ = select(func.max(_E.seq))
_LAST_OF_PROJECTS = _LAST_SEQ.where(
    _E.project.in_(bindparam("projects", expanding=True)), _E.seq <= bindparam("until")
)
_COUNT = select(func.count()).where(_E.seq > bindparam("since"), _E.seq <= bindparam("until"))
_CHANGED = (
    select(_E.resource_key, _E.project)
    .where(_E.seq > bindparam("since"))
    .distinct()
    .order_by(_E.resource_key)
)
_LARGEST = (
    select(_E.project)
    .group_by(_E.project)
    .having(func.count() >= bindparam("least"))
    .order_by(func.count().desc(), _E.project)
    .limit(bindparam("most"))
)
# All projects' events by their numbers: there are few since a read, and an index by project would
# be walked whole.
_SINCE = (
    select(_E.project)
    .where(_E.seq > bindparam("since"), _E.at <= bindparam("as_of", type_=_E.at.type))
    .order_by(_E.seq)
)
_USED_SINCE = union(
    select(_E.resource_key.label("key")).where(
        _OF_PROJECT,
        _E.at >= bindparam("start", type_=_E.at.type),
        _E.usage_class.in_(bindparam("classes", expanding=True)),
    ),
    select(nodes.c.node_key).where(
        nodes.c.project == bindparam("project"),
        nodes.c.live_name.is_not(None),
        nodes.c.state.in_(sorted(BILLABLE_NODE_STATES)),
        nodes.c.usage_class.in_(bindparam("classes", expanding=True)),
    ),
    *(
        select(key).where(
            key.table.c.project == bindparam("project"),
            literal(UsageClass.ON_DEMAND.value).in_(bindparam("classes", expanding=True)),
        )
        for key in (buckets.c.usage_key, disks.c.disk_key)
    ),
)
_PREEMPTIONS = (
    select(_E.at, _E.zone, _E.resource_name)
    .where(
        _OF_PROJECT, _E.state == "PREEMPTED", _E.at >= bindparam("start"), _E.at < bindparam("stop")
    )
    .order_by(_E.seq.desc())
    .limit(bindparam("most"))
)


def facts(
    uow: UnitOfWork, project: str, keys: Sequence[str] | None = None
) -> dict[str, BilledResource]:
    """Every node of the project that there has been, by key; or those of these `keys` that have
    events."""
    return {node.key: node for node in _facts(uow, project, keys)}


def events(
    uow: UnitOfWork,
    project: str,
    keys: Sequence[str] | None = None,
    last_seq: int | None = None,
    *,
    with_storage: bool = True,
) -> Iterator[UsageEvent]:
    """Resource by resource, as `pricing.bill.compute` takes them; of these `keys` only, or up to
    number `last_seq`. `with_storage`: those of disks, buckets and operations, too."""
    query = _EVENTS if last_seq is None else _EVENTS.where(_E.seq <= last_seq)
    query = query if with_storage else query.where(_OF_NODES)
    for part in _queries(query, keys):
        rows: Iterable[Any] = uow.execute(part, {"project": project})
        for row in rows:
            yield UsageEvent(*row)


def first_events(uow: UnitOfWork, project: str, keys: Sequence[str], most: int) -> list[UsageEvent]:
    """The events of a few resources, in the same order; no more than `most`."""
    rows: Iterable[Any] = uow.execute(
        _EVENTS.where(_E.resource_key.in_(keys)).limit(most), {"project": project}
    )
    return [UsageEvent(*row) for row in rows]


def histories(
    uow: UnitOfWork,
    project: str,
    keys: Sequence[str] | None = None,
    name: str | None = None,
    *,
    with_storage: bool = True,
) -> Iterator[tuple[BilledResource, list[UsageEvent]]]:
    """Each resource with its events in order, without their ids; of these `keys`, or of this `name`
    only. `with_storage`: disks, buckets and operations, too."""
    known = {node.key: node for node in _facts(uow, project, keys, name)}
    query = _HISTORIES if name is None else _HISTORIES.where(_E.resource_name == name)
    query = query if with_storage else query.where(_OF_NODES)
    for part in _queries(query, keys):
        rows: Iterable[Any] = uow.execute(part, {"project": project})
        for key, found in itertools.groupby(rows, operator.itemgetter(0)):
            # without its first event there is no telling what it was: `fsck` says so
            if node := known.get(key):
                yield node, [UsageEvent("", *row) for row in found]


def labels_and_creators(
    uow: UnitOfWork, event_ids: Sequence[str]
) -> dict[str, tuple[Mapping[str, str], str]]:
    """Return what labels there are from these events on, and who has created the resource, by
    event; of those that say it."""
    rows = uow.execute(_TOLD, {"events": list(event_ids)})
    return {row.event_id: (row.labels, row.created_by or "") for row in rows}


def last_version(uow: UnitOfWork, key: str) -> int:
    """The version of a resource's last event; 0 if it has none."""
    return int(uow.execute(_LAST_VERSION, {"key": key}).scalar() or 0)


def is_known(uow: UnitOfWork, event_id: str) -> bool:
    return uow.first(_KNOWN, {"event": event_id}) is not None


def first_use(uow: UnitOfWork, project: str) -> PlatformTime | None:
    """When the first event of the project was."""
    found: PlatformTime | None = uow.execute(_FIRST_USE, {"project": project}).scalar()
    return found


def last_seq(uow: UnitOfWork) -> int:
    """The number of the last event of all projects; 0: there is none."""
    return int(uow.execute(_LAST_SEQ).scalar() or 0)


def last_seq_of(uow: UnitOfWork, projects: Sequence[str], until: int) -> int:
    """The number of the projects' last event, of those up to number `until`."""
    return int(
        uow.execute(_LAST_OF_PROJECTS, {"projects": list(projects), "until": until}).scalar() or 0
    )


def count(uow: UnitOfWork, since: int, until: int) -> int:
    """Return how many of the numbers after `since` up to `until` have events."""
    return int(uow.execute(_COUNT, {"since": since, "until": until}).scalar() or 0)


def resources_changed(uow: UnitOfWork, project: str, since: int) -> list[str]:
    """The project's resources with events after number `since`. All projects' are read, by number:
    there are few."""
    return [
        row.resource_key
        for row in uow.execute(_CHANGED, {"since": since})
        if row.project == project
    ]


def any_since(uow: UnitOfWork, projects: Sequence[str], since: int, as_of: PlatformTime) -> bool:
    """Return whether one of the projects has an event after number `since` of the time up to
    `as_of`."""
    return any(
        row.project in projects for row in uow.execute(_SINCE, {"since": since, "as_of": as_of})
    )


def keys_used_since(
    uow: UnitOfWork,
    project: str,
    start: PlatformTime,
    classes: Collection[UsageClass] = tuple(UsageClass),
) -> list[str]:
    """Return what can have used any second since then, in order of the keys: what has changed
    since, nodes that are READY now, since before it perhaps, and disks and buckets that are there.
    All that others have used is older. Of these usage classes."""
    bound = {"project": project, "start": start, "classes": sorted(classes)}
    return sorted(row.key for row in uow.execute(_USED_SINCE, bound))


def preemptions(
    uow: UnitOfWork, project: str, start: PlatformTime, stop: PlatformTime, most: int
) -> list[tuple[PlatformTime, str, str]]:
    """(when, zone, name) of the project's preemptions in that time, the newest first, at most so
    many."""
    rows = uow.execute(
        _PREEMPTIONS, {"project": project, "start": start, "stop": stop, "most": most}
    )
    return [(row.at, row.zone, row.resource_name.rsplit("/", 1)[-1]) for row in rows]


def largest_projects(uow: UnitOfWork, most: int, events_least: int) -> list[str]:
    """The projects with the most events, of those that have so many; the largest first."""
    return [row.project for row in uow.execute(_LARGEST, {"most": most, "least": events_least})]


def wait_for_writers(uow: UnitOfWork) -> None:
    """No event is under way from now on: on PostgreSQL units take their numbers before they commit.
    On SQLite there is one writer at a time anyway."""
    if uow.connection.dialect.name == "postgresql":
        uow.execute(text("LOCK TABLE usage_events IN SHARE MODE"))


def _queries(query: Select[Any], keys: Sequence[str] | None) -> Iterator[Select[Any]]:
    """The query for these resources only, so many at once; None: for all of the project."""
    if keys is None:
        yield query
        return
    for place in range(0, len(keys), KEYS_AT_ONCE):
        yield query.where(_E.resource_key.in_(keys[place : place + KEYS_AT_ONCE]))


def _facts(
    uow: UnitOfWork, project: str, keys: Sequence[str] | None, name: str | None = None
) -> Iterator[BilledResource]:
    read = functools.cache(json.loads)  # many nodes have the same labels
    query = _FACTS if name is None else _FACTS.where(_E.resource_name == name)
    for part in _queries(query, keys):
        rows: Iterable[Any] = uow.execute(part, {"project": project})
        for _, found in itertools.groupby(rows, operator.itemgetter(0)):
            first, *changes = found
            key, called, zone, of_type, usage_class, nanos, labels, creator, bills_hosts, kind = (
                first
            )
            periods = [LabelPeriod(nanos // NANOS_PER_SECOND, read(labels))]
            for row in changes:
                _change(periods, row[5], read(row[6]))
            yield BilledResource(
                key,
                called,
                zone,
                of_type,
                UsageClass(usage_class),
                creator or "",
                tuple(periods),
                bool(bills_hosts),
                BilledKind(kind or BilledKind.NODE),
            )


def _change(periods: list[LabelPeriod], nanos: int, labels: Mapping[str, str]) -> None:
    """A change within a second counts from the next one; of several in one second, the last."""
    second = max(periods[-1].from_second, -(-nanos // NANOS_PER_SECOND))
    if periods[-1].from_second == second:
        periods.pop()
    if not periods or periods[-1].labels != labels:
        periods.append(LabelPeriod(second, labels))
