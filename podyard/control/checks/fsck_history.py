"""Histories: I10 (states follow their tables), I13 (time, and timers), I16 (nothing changes without
its line)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from podyard.control.checks.fsck_violation import GRACE_SECONDS, Violation
from podyard.db.store.timers import Timer
from podyard.db.store.transition import (
    AGENTS,
    ATTEMPTS,
    HOSTS,
    JOBS,
    NODES,
    OPERATIONS,
    QUEUED_RESOURCES,
    REPLICAS,
    RESERVATIONS,
    Recorded,
    Stated,
)
from podyard.db.views.fsck import Records
from podyard.domain.attempt import AttemptState
from podyard.domain.fleet import Fleet
from podyard.domain.machine import ResourceKind
from podyard.domain.node import NODE_STATES_WAITING_FOR_SLICE, NodeState
from podyard.domain.queued_resource import QueuedResourceState
from podyard.domain.state_change import StateChange

KINDS: Mapping[str, Stated] = {
    kind.machine.name: kind
    for kind in (
        AGENTS,
        NODES,
        OPERATIONS,
        HOSTS,
        JOBS,
        ATTEMPTS,
        QUEUED_RESOURCES,
        RESERVATIONS,
        REPLICAS,
    )
}
# In these a node, or a queued resource, is on its way to another state, and a timer takes it there.
_PASSING = frozenset(
    {
        NodeState.RESTARTING,
        NodeState.REIMAGING,
        NodeState.REPAIRING,
        NodeState.STOPPING,
        NodeState.DELETING,
    }
)
_QUEUED = (QueuedResourceState.ACCEPTED, QueuedResourceState.WAITING_FOR_RESOURCES)
_OVERDUE_SECONDS = 60.0  # of platform time: the loop fires what is due ten times a second


def check_history(records: Records, fleet: Fleet) -> Iterator[Violation]:
    del fleet
    last: StateChange | None = None
    ends: dict[str, StateChange] = {}
    for change in records.changes:
        before = last if last is not None and last.resource_key == change.resource_key else None
        yield from edge(change, before)
        ends[change.resource_key] = last = change
    yield from _rows(records, ends)
    yield from _timers(records)


def edge(change: StateChange, before: StateChange | None) -> Iterator[Violation]:
    """One line of a history, after the one `before` it (None: it is the first of its resource)."""
    machine = KINDS[change.machine].machine
    name, at = change.resource_name, change.at
    if not change.actor:
        yield Violation(
            "I16", at, name, f"version {change.version}: nobody is named who changed it"
        )
    if before is None:
        first = (change.event, change.from_state, change.to_state, change.version)
        if change.machine == AGENTS.machine.name and change.version == 2:
            return  # an agent of an earlier release: its registering was not recorded
        if first != _first_line(KINDS[change.machine]):
            yield Violation(
                "I16", at, name, f"its history begins with version {change.version}, {change.event}"
            )
        return
    if change.version != before.version + 1:
        text = f"version {change.version} follows version {before.version}"
        yield Violation("I16" if change.version > before.version else "I10", at, name, text)
    elif change.from_state != before.to_state:
        yield Violation(
            "I10", at, name, f"it leaves {change.from_state}, and was {before.to_state}"
        )
    allowed = machine.table.get(change.from_state, {}).get(change.event)
    if allowed != change.to_state:
        text = (
            f"{change.event} leads from {change.from_state} to {change.to_state}, "
            "and the table "
            f"says {allowed}"
        )
        yield Violation("I10", at, name, text)
    if at < before.at:
        yield Violation(
            "I13", at, name, f"version {change.version} is earlier than the one before it"
        )


def _first_line(kind: Stated) -> tuple[str, str, str, int]:
    """Hosts come with the placing of their node, 512 at a time: their history begins when one is
    first made real."""
    machine = kind.machine
    if kind is HOSTS:
        return (
            "materialise",
            machine.initial,
            machine.next_state(machine.initial, "materialise"),
            2,
        )
    return ("create", "", machine.initial, 1)


def _rows(records: Records, ends: Mapping[str, StateChange]) -> Iterator[Violation]:
    """A row stands where its last line left it."""
    items: Mapping[str, Recorded] = {
        **records.nodes,
        **records.operations,
        **records.queued,
        **records.jobs,
        **records.attempts,
        **{item.replica_id: item for item in records.replicas},
    }
    for key, item in items.items():
        state, version, end = item.state, item.version, ends.get(key)
        if end is None and records.after_seq:
            continue
        if end is None or end.version < version:
            last = 0 if end is None else end.version
            text = f"it is at version {version}, and its last line is of version {last}"
            yield Violation("I16", records.now, key if end is None else end.resource_name, text)
        elif (end.version, end.to_state) != (version, state):
            text = f"it is {state} at version {version}; its last line says {end.to_state}"
            yield Violation("I10", records.now, end.resource_name, text)


def _timers(records: Records) -> Iterator[Violation]:
    by_key: dict[str, list[Timer]] = {}
    for timer in records.timers:
        by_key.setdefault(timer.resource_key, []).append(timer)
        if timer.due.plus_seconds(_OVERDUE_SECONDS) < records.now:
            text = f"timer {timer.kind} was due at {timer.due.rfc3339()} and has not been fired"
            yield Violation("I13", timer.due, timer.resource_key, text)
        yield from _of_nobody(records, timer)
    placed = {item.node_key for item in records.slices}
    for key, node in records.nodes.items():
        mine = [timer for timer in by_key.get(key, ()) if timer.version in (0, node.version)]
        # Without chips they wait for the loop: two that begin, and one whose chips broke.
        waits = node.state in NODE_STATES_WAITING_FOR_SLICE and key not in placed and node.has_chips
        passing = not waits and (
            node.state in _PASSING or node.state in NODE_STATES_WAITING_FOR_SLICE
        )
        if passing and not any(timer.version == node.version for timer in mine):
            text = f"it is {node.state} and no timer will end that"
            yield Violation("I13", records.now, node.name, text)
        ends = node.termination
        if ends is not None and node.state is NodeState.READY and ends > records.now and not mine:
            yield Violation(
                "I13", records.now, node.name, f"no timer will end it at {ends.rfc3339()}"
            )
    for key, attempt in records.attempts.items():
        simulated = (
            attempt.state is AttemptState.RUNNING and records.jobs[attempt.job_key].spec.is_modelled
        )
        if simulated and not any(timer.version == attempt.version for timer in by_key.get(key, ())):
            yield Violation(
                "I13", records.now, key, "it is RUNNING without replicas and no timer will move it"
            )
    for key, queued in records.queued.items():
        wanted = "queuedResource.eligible" if queued.state is QueuedResourceState.ACCEPTED else ""
        if queued.state in _QUEUED and queued.valid_until is not None and queued.activated is None:
            wanted = "queuedResource.expire"
        if wanted and wanted not in [timer.kind for timer in by_key.get(key, ())]:
            yield Violation(
                "I13", records.now, queued.name, f"it is {queued.state} without timer {wanted}"
            )


def _of_nobody(records: Records, timer: Timer) -> Iterator[Violation]:
    """A timer that is for no row at all."""
    if records.after_seq and timer.due > records.now.plus_seconds(GRACE_SECONDS):
        return  # not all rows are here
    if timer.owner in ("fault", "chips", "budget", "invoice", "group"):
        return  # of rules, budgets and accounts: where one is removed, its timer does nothing
    known: Collection[str] | None = {
        "node": records.nodes,
        ResourceKind.QUEUED_RESOURCE: records.queued,
        "reservation": records.reservations,
        "maintenance": [*records.nodes, *records.operations],
        "job": records.attempts,
        "attempt": [*records.attempts, *records.jobs],
        "autostop": records.jobs,
        "log": records.attempts,
    }.get(timer.owner)
    if known is None:
        yield Violation(
            "I13", timer.due, timer.resource_key, f"nobody fires timers of the kind {timer.kind}"
        )
    elif (
        timer.resource_key not in known
        and not records.after_seq
        and timer.kind != "maintenance.simulated"
    ):
        text = f"timer {timer.kind} is for a row that is not there"
        yield Violation("I13", timer.due, timer.resource_key, text)
