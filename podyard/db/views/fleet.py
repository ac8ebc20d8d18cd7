"""The frozen snapshot that a scheduling cycle decides from."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Function,
    Label,
    Row,
    Table,
    bindparam,
    func,
    literal,
    or_,
    select,
    type_coerce,
)

from podyard.base.clock import PlatformTime
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.compute import reservations as reservation_rows
from podyard.db.platform import faults as fault_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes, slices
from podyard.db.tables.faults import broken_chips
from podyard.db.tables.jobs import attempts, checkpoints, job_metrics, jobs
from podyard.db.tables.queue import queued_resources, reservations
from podyard.domain.fault import Subject
from podyard.domain.fleet import Fleet, FleetSnapshot, NodeTimings, PlacementRequest
from podyard.domain.job import ACTIVE_JOB_STATES
from podyard.domain.job_fields import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN
from podyard.domain.node import (
    NODE,
    NODE_STATES_WAITING_FOR_SLICE,
    QUEUES,
    NodeState,
    UsageClass,
)
from podyard.domain.reservation import ReservationRoom
from podyard.domain.slice import PREEMPTIBLE_LIFE_SECONDS, SliceRecord, chips_from_text
from podyard.hardware.accelerator_types import kind_of
from podyard.hardware.topology import NO_TOPOLOGY

PRIORITY_LABEL = "podyard-priority"
# records of slices that have not changed since: more than a fleet of 4096-chip pods holds
SLICES_KEPT_MAX = 16_384


def _as_stored(column: Column[Any]) -> ColumnElement[int]:
    """A time as the integer that is stored."""
    return type_coerce(column, BigInteger)


# What a cycle needs and no more, as it is stored: it is loaded for every slice, and most of them
# are as they were.
_OF_SLICE = (
    select(
        slices.c.slice_id,
        slices.c.node_key,
        slices.c.pod_id,
        slices.c.chips,
        _as_stored(slices.c.created).label("placed"),
        nodes.c.project,
        nodes.c.usage_class,
        nodes.c.state,
        nodes.c.version,
        nodes.c.job_key,
        _as_stored(nodes.c.termination).label("termination"),
        _as_stored(nodes.c.reclaim_at).label("reclaim"),
        _as_stored(nodes.c.created).label("node_created"),
        nodes.c.host_count,
    )
    .join(nodes, nodes.c.node_key == slices.c.node_key)
    .order_by(slices.c.slice_id)
)
_MAY_PREEMPT = (UsageClass.ON_DEMAND, UsageClass.RESERVED)


def load(uow: UnitOfWork, fleet: Fleet) -> FleetSnapshot:
    held = uow.execute(_OF_SLICE).all()
    placed = {row.node_key for row in held}
    waiting_nodes = [row for row in uow.execute(_NODES_WAITING) if row.node_key not in placed]
    owned = any(row.job_key is not None for row in held) or any(
        row.job_key is not None for row in waiting_nodes
    )
    owners = _owners(uow) if owned else {}
    priorities = {key: owner.priority for key, owner in owners.items()}
    stockouts = Stockouts(uow)
    of_nodes = [_node_request(row, owners, stockouts) for row in waiting_nodes]
    waiting = (*of_nodes, *_queued_requests(uow, stockouts))
    # Only who may preempt asks for the price.
    priced = any(
        request.usage_class in _MAY_PREEMPT or request.job_priority is not None
        for request in waiting
    )
    limits = _limits_of_new_nodes(uow) if any(row.state == "CREATING" for row in held) else {}
    found = [
        _slice(
            tuple(row),
            limits.get(row.node_key, _NO_LIMITS),
            fleet.timings,
            priorities.get(row.job_key),
        )
        for row in held
    ]
    lost = _lost_work(uow) if held and priced else {}
    for index, item in enumerate(found if lost else ()):
        if item.node_key in lost:
            found[index] = dataclasses.replace(item, lost_work_seconds=lost[item.node_key])
    return FleetSnapshot(
        fleet=fleet,
        slices=tuple(found),
        waiting=waiting,
        broken_chips=fault_rows.broken_chips_by_pod(uow),
        reservations=_reservations(uow),
        shares=fleet.shares,
    )


class Stockouts:
    """The rules that deny chips now. One that has so many strokes left denies no more plain
    creations in a snapshot; what queues is denied for as long as the rule stands, and not
    counted."""

    def __init__(self, uow: UnitOfWork) -> None:
        self._rules = fault_rows.standing(uow, "stockout")
        self._left = {rule.fault_id: rule.times_left for rule in self._rules}

    def denies(self, subject: Subject, key: str, *, queued: bool) -> str:
        """The id of the rule that denies it chips, or nothing."""
        for rule in self._rules:
            left = self._left[rule.fault_id]
            if left != 0 and rule.matches(subject) and fault_rows.falls_on(rule, key):
                if not queued and left is not None:
                    self._left[rule.fault_id] = left - 1
                return rule.fault_id
        return ""


def anything_waits(uow: UnitOfWork) -> bool:
    """Return whether a cycle has anything to decide: cheap enough to ask at every tick."""
    return uow.execute(_WAITS).first() is not None


_HOLDS = select(slices.c.node_key).where(slices.c.node_key == nodes.c.node_key)
# A machine without chips never waits for any.
_WAITS_FOR_CHIPS = (
    nodes.c.state.in_(sorted(NODE_STATES_WAITING_FOR_SLICE)),
    nodes.c.topology != NO_TOPOLOGY,
)
_NODE = select(nodes.c.node_key).where(*_WAITS_FOR_CHIPS, ~_HOLDS.exists())
_QUEUED = select(queued_resources.c.version).where(
    queued_resources.c.state == "WAITING_FOR_RESOURCES"
)
_WAITS = select(literal(1)).where(or_(_NODE.exists(), _QUEUED.exists()))


def stamp(uow: UnitOfWork) -> tuple[Any, ...] | None:
    """Equal for two moments between which the loop has placed nothing, if what waits and what is
    free are the same.
    None while faults may come and go by the clock."""
    return None if uow.clock.fault_rules else tuple(uow.execute(_STAMP, {"now": uow.now}).all()[0])


def _figures(
    table: Table, functions: Sequence[Function[Any]], *where: ColumnElement[bool]
) -> list[Label[Any]]:
    """Figures of the rows, among which one that is gone and one that has come do not make up for
    each other."""
    asked = (
        select(function).select_from(table).where(*where).scalar_subquery()
        for function in functions
    )
    return [query.label(f"{table.name}_{number}") for number, query in enumerate(asked)]


_LATE_UNTIL = queued_resources.c.late_until
_HAS_ITS_TURN = (
    queued_resources.c.state == "WAITING_FOR_RESOURCES",
    queued_resources.c.queued_resource_key.not_in(
        select(nodes.c.queued_resource_key).where(
            nodes.c.queued_resource_key.is_not(None), nodes.c.live_name.is_not(None)
        )
    ),
    or_(_LATE_UNTIL.is_(None), bindparam("now", type_=_LATE_UNTIL.type) >= _LATE_UNTIL),
)
_QUEUE = (
    select(queued_resources)
    .where(*_HAS_ITS_TURN)
    .order_by(queued_resources.c.created, queued_resources.c.queued_resource_key)
)
_STAMP = select(
    *_figures(slices, (func.count(), func.max(slices.c.created))),
    *_figures(
        nodes,
        (func.count(), func.max(nodes.c.created), func.sum(nodes.c.version)),
        *_WAITS_FOR_CHIPS,
        ~_HOLDS.exists(),
    ),
    *_figures(
        queued_resources,
        (func.count(), func.max(queued_resources.c.created), func.sum(queued_resources.c.version)),
        *_HAS_ITS_TURN,
    ),
    *_figures(
        reservations,
        (func.count(), func.sum(reservations.c.version)),
        reservations.c.state == "ACTIVE",
    ),
    *_figures(broken_chips, (func.count(), func.max(broken_chips.c.until))),
)


def priority_of(labels: Mapping[str, str]) -> int:
    """The priority that the label `podyard-priority` gives: labels are free text, so what is none
    counts as 0."""
    try:
        given = int(labels.get(PRIORITY_LABEL, ""))
    except ValueError:
        return PRIORITY_DEFAULT
    return given if PRIORITY_MIN <= given <= PRIORITY_MAX else PRIORITY_DEFAULT


_Limits = tuple[float | None, int | None]  # how many seconds it may run, and the nanos when it ends
_NO_LIMITS: _Limits = (None, None)


def _limits_of_new_nodes(uow: UnitOfWork) -> dict[str, _Limits]:
    """By node key, of nodes that hold chips and have not been READY yet: what their users have
    limited."""
    return {
        row["node_key"]: (row["spec"].get("max_run_seconds"), row["spec"].get("termination_time"))
        for row in uow.all(_NEW_NODES)
    }


_NEW_NODES = (
    select(nodes.c.node_key, nodes.c.spec)
    .join(slices, slices.c.node_key == nodes.c.node_key)
    .where(nodes.c.state == "CREATING")
)
_NODES_WAITING = (
    select(
        nodes.c.node_key,
        nodes.c.version,
        nodes.c.project,
        nodes.c.zone,
        nodes.c.node_id,
        nodes.c.accelerator_type,
        nodes.c.topology,
        nodes.c.usage_class,
        nodes.c.state,
        nodes.c.spec,
        nodes.c.created,
        nodes.c.wait_reason,
        nodes.c.last_pod,
        nodes.c.job_key,
        nodes.c.slice_count,
        nodes.c.queued_resource_key,
    )
    .where(*_WAITS_FOR_CHIPS)
    .order_by(nodes.c.created, nodes.c.node_key)
)


class _Owner(NamedTuple):
    """The job that a node was made for. `waits`: it has nowhere else to go."""

    priority: int
    waits: bool


def _owners(uow: UnitOfWork) -> dict[str, _Owner]:
    """By their keys, the jobs that have not ended and whose nodes the platform made for them."""
    found = {}
    for row in uow.all(_JOBS_WITH_NODES):
        spec = row["spec"]
        waits = row["fallbacks_used"] == len(spec.get("fallbacks", ()))
        found[row["job_key"]] = _Owner(spec.get("priority", PRIORITY_DEFAULT), waits)
    return found


_JOBS_WITH_NODES = select(jobs.c.job_key, jobs.c.spec, jobs.c.fallbacks_used).where(
    jobs.c.owns_node, jobs.c.state.in_(ACTIVE_JOB_STATES)
)


def _lost_work(uow: UnitOfWork) -> dict[str, float]:
    """Node key -> modelled seconds of the running job that no checkpoint holds yet."""
    return {row["node_key"]: float(row["seconds"]) for row in uow.all(_LOST_WORK)}


_SAVED = select(func.max(checkpoints.c.step)).where(
    checkpoints.c.job_key == attempts.c.job_key, checkpoints.c.attempt == attempts.c.attempt
)
_LOST_WORK = (
    select(jobs.c.node_key, func.sum(job_metrics.c.modelled_seconds).label("seconds"))
    .join(attempts, attempts.c.job_key == jobs.c.job_key)
    .join(
        job_metrics,
        (job_metrics.c.job_key == jobs.c.job_key) & (job_metrics.c.attempt == attempts.c.attempt),
    )
    .where(
        # The few jobs that have not ended first: of all attempts and steps, theirs are a small
        # part.
        jobs.c.state.in_(ACTIVE_JOB_STATES),
        attempts.c.state != "ENDED",
        job_metrics.c.step
        > func.coalesce(_SAVED.correlate(attempts).scalar_subquery(), attempts.c.resume_step),
    )
    .group_by(jobs.c.node_key)
)


@functools.lru_cache(maxsize=SLICES_KEPT_MAX)
def _slice(
    row: tuple[Any, ...], limits: _Limits, timings: NodeTimings, job_priority: int | None
) -> SliceRecord:
    """`row`: of `_OF_SLICE`."""
    slice_id, node_key, pod_id, chips, placed, project, usage, state, version, _, *of_node = row
    termination, reclaim, created, host_count = of_node
    usage_class = UsageClass(usage)
    ends: PlatformTime | None
    if not NODE.allows(state, "preempt"):
        ends = PlatformTime(placed)  # it is leaving already
    elif termination is not None:
        ends = PlatformTime(termination)
    elif state != "CREATING":
        ends = None  # `termination` is set with the first READY
    else:
        creation = timings.creation_seconds(host_count)
        ends = _latest_end(
            usage_class, PlatformTime(placed), PlatformTime(created), limits, creation
        )
    return SliceRecord(
        slice_id=slice_id,
        node_key=node_key,
        pod_id=pod_id,
        chips=chips_from_text(chips),
        project=project,
        usage_class=usage_class,
        node_version=version,
        placed=PlatformTime(placed),
        ends=ends,
        reclaim=None if reclaim is None else PlatformTime(reclaim),
        job_priority=job_priority,
    )


def _latest_end(
    usage_class: UsageClass,
    placed: PlatformTime,
    created: PlatformTime,
    limits: _Limits,
    create_seconds: float,
) -> PlatformTime | None:
    """The latest moment at which a node that is being made ends by itself."""
    max_run_seconds, termination = limits
    ends = []
    if usage_class is UsageClass.PREEMPTIBLE:
        ends.append(created.plus_seconds(PREEMPTIBLE_LIFE_SECONDS))
    if max_run_seconds is not None:
        ends.append(placed.plus_seconds(create_seconds + max_run_seconds))
    if termination is not None:
        ends.append(PlatformTime(termination))
    return min(ends, default=None)


def _duration(usage_class: str, max_run_seconds: float | None) -> float | None:
    """For how long a node that waits can be READY at most, in seconds; None: for ever."""
    life = PREEMPTIBLE_LIFE_SECONDS if usage_class == UsageClass.PREEMPTIBLE else None
    return min((float(item) for item in (life, max_run_seconds) if item is not None), default=None)


def _node_request(
    row: Row[Any], owners: Mapping[str, _Owner], stockouts: Stockouts
) -> PlacementRequest:
    """`row`: of `_NODES_WAITING`."""
    owner = None if row.job_key is None else owners.get(row.job_key)
    job_priority = None if owner is None else owner.priority
    # A replaced slice waits, so does one that is repaired, and a job's that has no fallback; a node
    # that its user starts again not.
    of_platform = row.queued_resource_key is not None or (owner is not None and owner.waits)
    of_platform = of_platform or bool(row.spec.get("extras", {}).get(QUEUES))
    queued = row.state == NodeState.REPAIRING or (row.state == NodeState.CREATING and of_platform)
    spec = row.spec
    subject = fault_rows.of_named_node(
        row.project, row.zone, row.node_id, row.accelerator_type, row.usage_class
    )
    return PlacementRequest(
        node_key=row.node_key,
        version=row.version,
        project=row.project,
        zone=row.zone,
        accelerator_type=kind_of(row.accelerator_type, row.topology),
        usage_class=UsageClass(row.usage_class),
        priority=priority_of(spec.get("labels", {})) if job_priority is None else job_priority,
        created=row.created,
        job_group=(row.job_key or "")
        if row.state == NodeState.CREATING and row.slice_count > 1
        else "",
        queued=queued,
        reservation_name=spec.get("reservation_name", ""),
        wait_reason=row.wait_reason,
        duration_seconds=_duration(row.usage_class, spec.get("max_run_seconds")),
        job_priority=job_priority,
        last_pod=row.last_pod or "",
        fault=stockouts.denies(subject, row.node_key, queued=queued),
    )


def _queued_requests(uow: UnitOfWork, stockouts: Stockouts) -> list[PlacementRequest]:
    """One request for each node of the queued resources whose turn it may be. One that still has
    nodes from before
    its reset waits until they are gone, one that a fault makes late until then."""
    requests = []
    for queued in [queue_rows.to_record(row) for row in uow.all(_QUEUE, {"now": uow.now})]:
        spec = queued.spec
        # The node group is placed as one, so it has one priority: the highest that its nodes ask
        # for.
        priority = max(priority_of(node.spec.labels) for node in spec.nodes)
        denied = stockouts.denies(
            fault_rows.of_queued_resource(queued), queued.queued_resource_key, queued=True
        )
        for position, node in enumerate(spec.nodes):
            requests.append(
                PlacementRequest(
                    node_key=f"{queued.queued_resource_key}/{position:06d}",
                    version=queued.version,
                    project=queued.project,
                    zone=queued.zone,
                    accelerator_type=kind_of(node.spec.accelerator_type, node.spec.topology),
                    usage_class=queued.usage_class,
                    priority=priority,
                    created=queued.created,
                    group=queued.queued_resource_key,
                    not_before=queued.valid_after,
                    queued=True,
                    reservation_name=node.spec.reservation_name,
                    min_duration_seconds=spec.min_duration_seconds,
                    wait_reason=queued.wait_reason,
                    duration_seconds=_duration(queued.usage_class, node.spec.max_run_seconds),
                    fault=denied,
                )
            )
    return requests


def _reservations(uow: UnitOfWork) -> tuple[ReservationRoom, ...]:
    found = reservation_rows.active(uow)
    held = reservation_rows.held_chips(uow) if found else {}
    return tuple(
        ReservationRoom(
            reservation_key=item.reservation_key,
            project=item.project,
            zone=item.zone,
            name=item.name,
            generation=item.generation,
            chips=item.size // item.units_per_chip - held.get(item.reservation_key, 0),
            ends=item.ends,
        )
        for item in found
    )
