"""Rows of fault rules and of what they have broken, and the question that use cases ask: does a
fault hit this?

Who asks pays nothing while there are no rules: the clock's row, which nearly every unit of work
reads, says how many there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import bindparam, delete, func, or_, select, update

from podyard.base.clock import PlatformTime
from podyard.base.ids import row_id
from podyard.base.rng import Streams
from podyard.db.store import timers
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import clock
from podyard.db.tables.faults import broken_chips, faults, node_faults
from podyard.domain.fault import BrokenChips, FaultRule, NodeFault, Subject
from podyard.domain.node import NODE, NodeRecord, node_name
from podyard.domain.queued_resource import QueuedResourceRecord
from podyard.domain.slice import chips_from_text, chips_text

ACTOR = "fault"
FIRE_TIMER, OVER_TIMER, NODE_TIMER, MEND_TIMER = (
    "fault.fire",
    "fault.over",
    "fault.node",
    "chips.mend",
)

_ALL = select(faults).order_by(faults.c.seq)
_BROKEN = select(broken_chips.c.pod_id, broken_chips.c.chips).order_by(broken_chips.c.pod_id)
_ACTIVE = select(faults).where(faults.c.over.is_(False)).order_by(faults.c.seq)
_BY_ID = select(faults).where(faults.c.fault_id == bindparam("id"))
_STRUCK = (
    update(faults)
    .where(
        faults.c.fault_id == bindparam("id"),
        faults.c.over.is_(False),
        or_(faults.c.count.is_(None), faults.c.fired < faults.c.count),
    )
    .values(fired=faults.c.fired + 1)
)


@contextmanager
def acting(uow: UnitOfWork) -> Iterator[None]:
    """Yield what happens within is a fault's doing, and the events say so."""
    before, uow.actor = uow.actor, ACTOR
    try:
        yield
    finally:
        uow.actor = before


def of_node(node: NodeRecord) -> Subject:
    """A node, as rules match it."""
    return of_named_node(
        node.project, node.zone, node.node_id, node.accelerator_type, node.usage_class
    )


def of_named_node(
    project: str, zone: str, node_id: str, accelerator_type: str, usage: str
) -> Subject:
    """As `of_node`, where no record is made of the node."""
    names = (node_id, node_name(project, zone, node_id))
    return Subject(zone, accelerator_type, project, names, "", str(usage))


def of_queued_resource(queued: QueuedResourceRecord) -> Subject:
    """A queued resource, as rules match it: by the type of its first node, and by its own name and
    theirs."""
    made = queued.spec.nodes
    names = (queued.queued_resource_id, queued.name, *(node.node_id for node in made))
    return Subject(
        queued.zone,
        made[0].spec.accelerator_type,
        queued.project,
        names,
        "",
        queued.usage_class.value,
    )


def all_rules(uow: UnitOfWork) -> list[FaultRule]:
    """In the order in which they were added."""
    return [_rule(row) for row in uow.all(_ALL)]


def active_rules(uow: UnitOfWork) -> list[FaultRule]:
    """Those that are not over. No statement where the clock says that there are none."""
    return [_rule(row) for row in uow.all(_ACTIVE)] if uow.clock.fault_rules else []


def standing(uow: UnitOfWork, effect: str) -> list[FaultRule]:
    """The rules of an effect that stand now."""
    return [rule for rule in active_rules(uow) if rule.effect == effect and rule.stands(uow.now)]


def by_id(uow: UnitOfWork, fault_id: str, *, lock: bool = False) -> FaultRule | None:
    row = uow.first(_BY_ID.with_for_update() if lock else _BY_ID, {"id": fault_id})
    return None if row is None else _rule(row)


def struck(uow: UnitOfWork, effect: str, subject: Subject, **parameters: Any) -> FaultRule | None:
    """The first standing rule of the effect, with these parameters, that matches and by chance
    hits; it is counted."""
    for rule in standing(uow, effect):
        same = all(rule.parameters.get(name) == value for name, value in parameters.items())
        if same and rule.matches(subject) and falls(uow, rule) and count(uow, rule.fault_id):
            return rule
    return None


def falls(uow: UnitOfWork, rule: FaultRule) -> bool:
    """One draw with the rule's probability."""
    return rule.probability >= 1.0 or uow.streams.stream("faults").random() < rule.probability


def falls_on(rule: FaultRule, key: str) -> bool:
    """The draw for one resource: however often it is asked for, the answer is the same."""
    if rule.probability >= 1.0:
        return True
    return (
        Streams(int(rule.fault_id.rpartition("-")[2], 16)).stream(key).random() < rule.probability
    )


def count(uow: UnitOfWork, fault_id: str) -> bool:
    """Counts one stroke of a rule; False when it may act no more, and so has not."""
    if uow.execute(_STRUCK, {"id": fault_id}).rowcount != 1:
        return False
    rule = by_id(uow, fault_id)
    if rule is not None and rule.times_left == 0:
        end(uow, fault_id)
    return True


def add(uow: UnitOfWork, rule: FaultRule) -> None:
    uow.insert(
        faults, {**columns(rule), "match": dict(rule.match), "parameters": dict(rule.parameters)}
    )
    _tell_clock(uow)


def end(uow: UnitOfWork, fault_id: str) -> None:
    """The rule will act no more."""
    uow.execute(update(faults).where(faults.c.fault_id == fault_id).values(over=True))
    timers.drop(uow, fault_id)
    _tell_clock(uow)


def remove(uow: UnitOfWork, fault_id: str) -> None:
    """The rule, its timers, and what it has in store for nodes. Chips that it has broken are not
    touched."""
    for row in uow.all(
        select(node_faults.c.node_fault_id).where(node_faults.c.fault_id == fault_id)
    ):
        timers.drop(uow, row["node_fault_id"])
    uow.execute(delete(node_faults).where(node_faults.c.fault_id == fault_id))
    timers.drop(uow, fault_id)
    uow.execute(delete(faults).where(faults.c.fault_id == fault_id))
    _tell_clock(uow)


def _tell_clock(uow: UnitOfWork) -> None:
    """Keeps the number of rules that may still be felt: those that are not over, or have something
    in store."""
    in_store = select(node_faults.c.fault_id)
    felt = select(func.count()).select_from(faults)
    number = int(
        uow.execute(
            felt.where(or_(faults.c.over.is_(False), faults.c.fault_id.in_(in_store)))
        ).scalar()
        or 0
    )
    if number == uow.clock.fault_rules:
        return
    now = uow.now
    uow.execute(update(clock).values(fault_rules=number))
    uow.keep_clock(dataclasses.replace(uow.clock, fault_rules=number))
    uow.at(now)  # a timer's unit goes on at its due time


def break_chips(
    uow: UnitOfWork,
    rule: FaultRule,
    node_key: str,
    node_version: int,
    pod_id: str,
    chips: int,
    until: PlatformTime | None,
) -> None:
    """Keeps chips of the node's slice from being given to anybody, `until` then (None: until the
    rule is removed)."""
    break_id = row_id(uow.streams.stream("broken_chips"), "break")
    broke = BrokenChips(
        break_id, rule.fault_id, pod_id, chips, until, rule.reason, node_key, node_version
    )
    uow.insert(broken_chips, {**columns(broke), "chips": chips_text(chips)})
    if until is not None:
        timers.put(uow, MEND_TIMER, break_id, 0, until)


def mend(uow: UnitOfWork, *, break_id: str = "", fault_id: str = "") -> list[BrokenChips]:
    """Lets broken chips work again, those of one break or of a rule, and returns them."""
    mine = broken_chips.c.break_id == break_id if break_id else broken_chips.c.fault_id == fault_id
    found = uow.all(select(broken_chips).where(mine).order_by(broken_chips.c.break_id))
    for row in found:
        timers.drop(uow, row["break_id"])
    uow.execute(delete(broken_chips).where(mine))
    return [BrokenChips(**{**row, "chips": chips_from_text(row["chips"])}) for row in found]


def broken_chips_by_pod(uow: UnitOfWork) -> dict[str, int]:
    """Bit set of broken chips by pod, where there are any."""
    found: dict[str, int] = {}
    for row in uow.all(_BROKEN):
        found[row["pod_id"]] = found.get(row["pod_id"], 0) | chips_from_text(row["chips"])
    return found


def keep_for_node(
    uow: UnitOfWork,
    rule: FaultRule,
    node: NodeRecord,
    kind: str,
    at: PlatformTime | None,
    *,
    version: int = 0,
    factor: float = 1.0,
) -> None:
    """Puts a fault in store for a node, with the timer that takes it out at `at`."""
    node_fault_id = row_id(uow.streams.stream("node_faults"), "nf")
    kept = NodeFault(
        node_fault_id, rule.fault_id, node.node_key, version, kind, at, factor, rule.reason
    )
    uow.insert(node_faults, columns(kept))
    if at is not None:
        timers.put(uow, NODE_TIMER, node_fault_id, 0, at)
    _tell_clock(uow)


def take_from_store(uow: UnitOfWork, node_fault_id: str) -> NodeFault | None:
    mine = node_faults.c.node_fault_id == node_fault_id
    row = uow.first(select(node_faults).where(mine))
    uow.execute(delete(node_faults).where(mine))
    _tell_clock(uow)
    return None if row is None else NodeFault(**row)


def loses_operation(uow: UnitOfWork, subject: Subject) -> bool:
    """Return whether a fault keeps an operation that begins from everybody."""
    return struck(uow, "lostOperation", subject) is not None


def lost_while_created(uow: UnitOfWork, node: NodeRecord, at: PlatformTime) -> bool:
    """Return whether a fault takes the node back at `at`, before it is READY."""
    rule = struck(uow, "preempt", of_node(node), during="create")
    if rule is not None:
        keep_for_node(uow, rule, node, "preempt", at, version=node.version)
    return rule is not None


def lost_while_deleted(uow: UnitOfWork, node: NodeRecord) -> FaultRule | None:
    """The fault that takes the node back just when a user deletes it. Not one that an operation
    still runs on."""
    if node.pending_operation is not None or not NODE.allows(node.state, "preempt"):
        return None
    return struck(uow, "preempt", of_node(node), during="delete")


def slowness(uow: UnitOfWork, node_key: str) -> float:
    """Return how much longer the steps of jobs on a node take: the slowest of its links; 1 where
    none is slow."""
    if not uow.clock.fault_rules:
        return 1.0
    slow = select(func.max(node_faults.c.factor)).where(
        node_faults.c.node_key == node_key, node_faults.c.kind == "slow"
    )
    return float(uow.execute(slow).scalar() or 1.0)


def without_metadata(uow: UnitOfWork, node: NodeRecord) -> tuple[int, ...]:
    """The hosts of a node whose metadata servers are down."""
    rules = [rule for rule in standing(uow, "metadata") if rule.matches(of_node(node))]
    down = [rule.worker for rule in rules]
    return tuple(index for index in range(node.host_count) if index in down or None in down)


def _rule(row: Mapping[str, Any]) -> FaultRule:
    return FaultRule(**{name: row[name] for name in FaultRule.__dataclass_fields__})
