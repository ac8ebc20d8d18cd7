"""Faults on demand: adding and removing rules, and what they do at their moments.

What holds while a rule stands is asked for where it acts: `db/faults` by use cases, `http/faults`
by calls. An event chooses among the nodes that match and are READY then, in the order of their
names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podyard.base.clock import ClockMode
from podyard.base.errors import failed_precondition, not_found
from podyard.base.ids import row_id
from podyard.control.compute import nodes, queue_states
from podyard.control.jobs import preemption, recovery
from podyard.control.platform.clock import LATEST
from podyard.db.compute import nodes as node_rows
from podyard.db.platform import faults as rows
from podyard.db.platform import state_changes
from podyard.db.store import platform_clock, timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fault import RULES_MAX, FaultRule, NodeFault, Subject, parse_rule, parse_rules
from podyard.domain.fleet import Fleet
from podyard.domain.node import (
    NODE,
    ONGOING,
    UNHEALTHY_MAINTENANCE,
    Node,
    NodeRecord,
    NodeState,
    UpcomingMaintenance,
)
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import QUEUED_RESOURCE, QueuedResource, QueuedResourceState


def create(uow: UnitOfWork, principal: Principal, data: Any) -> FaultRule:
    """Adds the rule that `data` (as JSON has it) says; durations count from now.

    Raises INVALID_ARGUMENT that names the field, FAILED_PRECONDITION when there are too many rules,
    or for a `jump` of a clock that is not virtual.
    """
    principal.require("podyard.faults.create", "*", "faults")
    return _add(uow, [parse_rule(data, uow.now)])[0]


def create_all(uow: UnitOfWork, principal: Principal, items: Any) -> list[FaultRule]:
    """Adds a list of rules, all or none; raises as `create`, with the number of the item before the
    field."""
    principal.require("podyard.faults.create", "*", "faults")
    return _add(uow, parse_rules(items, uow.now))


def get(uow: UnitOfWork, principal: Principal, fault_id: str) -> FaultRule:
    principal.require("podyard.faults.list", "*", f"faults/{fault_id}")
    return _find(uow, fault_id)


def list_faults(uow: UnitOfWork, principal: Principal) -> list[FaultRule]:
    """All rules, those that are over too, in the order in which they were added."""
    principal.require("podyard.faults.list", "*", "faults")
    return rows.all_rules(uow)


def delete(uow: UnitOfWork, principal: Principal, fault_id: str) -> None:
    """Removes a rule. What it has in store does not come, and what it has broken works again."""
    principal.require("podyard.faults.delete", "*", f"faults/{fault_id}")
    _find(uow, fault_id)
    rows.remove(uow, fault_id)
    recovery.mend(uow, fault_id)


def _find(uow: UnitOfWork, fault_id: str) -> FaultRule:
    rule = rows.by_id(uow, fault_id)
    if rule is None:
        raise not_found(f"faults/{fault_id}")
    return rule


def _add(uow: UnitOfWork, asked: Sequence[FaultRule]) -> list[FaultRule]:
    here = len(rows.all_rules(uow))
    if here + len(asked) > RULES_MAX:
        raise failed_precondition(
            f"there are already {here} fault rules, and the maximum is {RULES_MAX}: "
            "remove some first"
        )
    added = []
    for asked_rule in asked:
        if asked_rule.effect == "jump" and uow.clock.mode is not ClockMode.VIRTUAL:
            raise failed_precondition(
                f"effect jump requires a virtual clock, but the clock is {uow.clock.mode}"
            )
        rule = dataclasses.replace(
            asked_rule, fault_id=row_id(uow.streams.stream("fault_ids"), "f")
        )
        rows.add(uow, rule)
        if rule.is_event:
            timers.put(uow, rows.FIRE_TIMER, rule.fault_id, 0, rule.starts)
        if rule.ends is not None:
            timers.put(uow, rows.OVER_TIMER, rule.fault_id, 0, rule.ends)
        added.append(rule)
    return added


def see_node(uow: UnitOfWork, rules: Sequence[FaultRule], method: str, node: Node) -> Node:
    """A node as the standing rules of views let it be seen; each one that changes something is
    counted."""
    names, usage = (node.node_id, node.name), str(node.spec.usage_class)
    subject = Subject(node.zone, node.spec.accelerator_type, node.project, names, method, usage)
    for rule in rules:
        seen = node
        if rule.effect == "health":
            seen = dataclasses.replace(node, health="")
        elif rule.effect == "stale":
            seen = dataclasses.replace(
                node, state=NodeState(_state_before(uow, rule, node.node_key, NODE.initial))
            )
        elif node.state == rule.parameters["state"]:
            seen = dataclasses.replace(node, state=NodeState(rule.parameters["as"]))
        if seen != node and _strikes(uow, rule, subject):
            node = seen
    return node


def see_queued_resource(
    uow: UnitOfWork, rules: Sequence[FaultRule], method: str, queued: QueuedResource
) -> QueuedResource:
    """The same of a queued resource, of which only the state may be stale."""
    names = (queued.queued_resource_id, queued.name)
    kind = queued.spec.nodes[0].spec.accelerator_type
    subject = Subject(
        queued.zone, kind, queued.project, names, method, str(queued.spec.usage_class)
    )
    for rule in rules:
        if rule.effect == "stale":
            state = _state_before(uow, rule, queued.queued_resource_key, QUEUED_RESOURCE.initial)
            if state != queued.state and _strikes(uow, rule, subject):
                return dataclasses.replace(queued, state=QueuedResourceState(state))
    return queued


def _strikes(uow: UnitOfWork, rule: FaultRule, subject: Subject) -> bool:
    return rule.matches(subject) and rows.falls(uow, rule) and rows.count(uow, rule.fault_id)


def _state_before(uow: UnitOfWork, rule: FaultRule, key: str, first: str) -> str:
    """The state that the resource had so long ago; its first one when it was not there yet."""
    then = uow.now.plus_seconds(-rule.seconds)
    return state_changes.state_at(uow, key, then) or first


def on_timer(uow: UnitOfWork, fleet: Fleet, timer: Timer) -> None:
    """Carry out a timer of the rules. One of a rule that was removed meanwhile does nothing."""
    with rows.acting(uow):
        if timer.kind == rows.NODE_TIMER:
            _from_store(uow, rows.take_from_store(uow, timer.resource_key))
            return
        rule = rows.by_id(uow, timer.resource_key, lock=True)
        if rule is None or rule.over:
            return
        if timer.kind == rows.OVER_TIMER:
            rows.end(uow, rule.fault_id)
        else:
            _fire(uow, fleet, rule)


def _fire(uow: UnitOfWork, fleet: Fleet, rule: FaultRule) -> None:
    """One moment of an event, and the timer of the next."""
    if rule.effect == "jump":
        if rows.falls(uow, rule) and rows.count(uow, rule.fault_id):
            _jump(uow, rule)
    else:
        effect = _EFFECTS[rule.effect]
        for node in node_rows.ready(uow):
            if not rule.matches(rows.of_node(node)) or not rows.falls(uow, rule):
                continue
            if not rows.count(uow, rule.fault_id):
                return  # it has struck as often as it may
            effect(uow, fleet, rule, node)
    again = None if rule.every_seconds is None else uow.now.plus_seconds(rule.every_seconds)
    if again is None or (rule.ends is not None and again >= rule.ends):
        rows.end(uow, rule.fault_id)
        return
    now = rows.by_id(uow, rule.fault_id)
    if now is not None and not now.over:
        timers.put(uow, rows.FIRE_TIMER, rule.fault_id, 0, again)


def _preempt(uow: UnitOfWork, fleet: Fleet, rule: FaultRule, node: NodeRecord) -> None:
    del fleet
    notice = float(rule.parameters["notice"])
    if notice == 0:
        nodes.take_back(uow, node, "preempt", rule.reason)
        return
    at = uow.now.plus_seconds(notice)
    preemption.give_notice(uow, node, at, rule.reason)
    rows.keep_for_node(uow, rule, node, "preempt", at)


def _from_store(uow: UnitOfWork, kept: NodeFault | None) -> None:
    """The moment of what a rule had in store for a node has come. A slow link is as fast as before
    by that alone."""
    if kept is None or kept.kind != "preempt":
        return
    node = node_rows.get_by_key(uow, kept.node_key)
    if not NODE.allows(node.state, "preempt"):
        return
    # After a notice: it may have been stopped and started on other chips since, and then has none
    # any more.
    noticed = node.reclaim_at is not None and node.reclaim_at <= uow.now
    if node.version == kept.node_version or (kept.node_version == 0 and noticed):
        nodes.take_back(uow, node, "preempt", kept.reason)


def _break(uow: UnitOfWork, fleet: Fleet, rule: FaultRule, node: NodeRecord) -> None:
    damage: recovery.Damage | None
    if rule.effect == "chip":
        damage = recovery.broken_chips(uow, fleet, rule, node)
    elif rule.effect == "link":
        damage = recovery.broken_link(uow, fleet, node)
    else:
        damage = recovery.broken_host(uow, fleet, rule, node)
    if damage is not None:
        recovery.strike(uow, fleet, rule, node, damage)


def _link(uow: UnitOfWork, fleet: Fleet, rule: FaultRule, node: NodeRecord) -> None:
    factor = float(rule.parameters["factor"])
    if factor < 1:
        _break(uow, fleet, rule, node)
        return
    until = uow.now.plus_seconds(rule.seconds) if rule.seconds else None
    rows.keep_for_node(uow, rule, node, "slow", until, factor=factor)


def _maintain(uow: UnitOfWork, fleet: Fleet, rule: FaultRule, node: NodeRecord) -> None:
    del fleet
    seconds = rule.seconds
    start, end = uow.now.rfc3339(), uow.now.plus_seconds(seconds).rfc3339()
    upcoming = UpcomingMaintenance(
        type="UNSCHEDULED",
        can_reschedule=False,
        window_start=start,
        window_end=end,
        latest_window_start=start,
        maintenance_status=ONGOING,
    )
    changed = dataclasses.replace(
        node,
        health=UNHEALTHY_MAINTENANCE,
        health_description=rule.reason,
        maintenance_workers=tuple(range(node.host_count)),
        upcoming_maintenance=upcoming,
    )
    nodes.pass_into(uow, node, "repair", "repaired", seconds, rule.reason, changed)
    if node.queued_resource_key is not None:
        queue_states.maintain(uow, node)


def _jump(uow: UnitOfWork, rule: FaultRule) -> None:
    """The clock's target, or the present where it has none, lies so much later; the loop walks
    there."""
    begin = uow.now if uow.clock.target is None else uow.clock.target
    target = min(begin.plus_seconds(rule.seconds), LATEST)
    now = uow.now
    platform_clock.write(uow, dataclasses.replace(uow.clock, target=target))
    uow.at(now)


_EFFECTS: Mapping[str, Callable[[UnitOfWork, Fleet, FaultRule, NodeRecord], None]] = {
    "preempt": _preempt,
    "host": _break,
    "chip": _break,
    "power": _break,
    "link": _link,
    "maintenance": _maintain,
}
