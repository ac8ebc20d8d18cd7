"""Broken hardware: chips that are given to nobody, the node whose slice had them, and its way back
to READY.

The node is REPAIRING, which is not billed, its jobs resume from their last checkpoints, and the
other slices of its multislice restart once it is READY again (`queue_states`). Nodes that may be
taken back are PREEMPTED instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.control.compute import nodes, queue_states
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import slices
from podyard.db.platform import faults as fault_rows
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fault import FaultRule
from podyard.domain.fleet import Fleet
from podyard.domain.node import TIMEOUT, UNHEALTHY_TENSORFLOW, NodeRecord, NodeState, Symptom
from podyard.domain.slice import PlacedSlice
from podyard.hardware.torus import chips_of, mask_of
from podyard.scheduler.recovery import Recovery, decide, hosts_of_slice, links_of_slice


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """`chips` of a slice that work no more, what is said of it, and on which hosts. `health` and
    `symptom` are Google's (google.cloud.tpu.v2.Node.Health, Symptom.SymptomType)."""

    chips: int
    text: str
    workers: tuple[int, ...]
    health: str = UNHEALTHY_TENSORFLOW
    symptom: str = "MESH_BUILD_FAIL"


def strike(
    uow: UnitOfWork, fleet: Fleet, rule: FaultRule, node: NodeRecord, damage: Damage
) -> None:
    """The node's slice loses chips, for the rule's `seconds` (0: until the rule is removed)."""
    seconds = rule.seconds
    back = uow.now.plus_seconds(seconds) if seconds else None
    pod_id = _slice_of(uow, node).pod_id
    decision = decide(node.usage_class, back, uow.now, fleet.timings.repair_seconds)
    reason = f"{rule.reason}: {damage.text}"
    # First, so that of the two timers that are due together the chips' is fired before the node's.
    fault_rows.break_chips(uow, rule, node.node_key, node.version + 1, pod_id, damage.chips, back)
    if decision is Recovery.LOSE:
        nodes.take_back(uow, node, "preempt", reason)
    elif decision is Recovery.MOVE:
        _repair(uow, node, damage, reason, None, leaves=pod_id)
    else:
        _repair(uow, node, damage, reason, seconds, leaves=None)


def _repair(
    uow: UnitOfWork,
    node: NodeRecord,
    damage: Damage,
    reason: str,
    seconds: float | None,
    *,
    leaves: str | None,
) -> None:
    """`seconds`: until it is READY again on its slice. `leaves`: the pod whose slice it gives up,
    once the last process is gone from it."""
    changed = dataclasses.replace(
        node,
        health=damage.health,
        health_description=reason,
        symptoms=tuple(
            Symptom(uow.now.rfc3339(), damage.symptom, reason, str(worker))
            for worker in damage.workers
        ),
        last_pod=leaves,
    )
    moved = nodes.pass_into(uow, node, "repair", "repaired", seconds, reason, changed)
    if node.queued_resource_key is not None:
        queue_states.maintain(uow, node)
    if leaves is not None:
        timers.put(uow, "node.release", node.node_key, moved.version, uow.now)


def on_timer(uow: UnitOfWork, timer: Timer) -> None:
    """Chips work again. A node that has waited for them has a separate timer."""
    fault_rows.mend(uow, break_id=timer.resource_key)


def mend(uow: UnitOfWork, fault_id: str) -> None:
    """All chips that a rule has broken work again, sooner than was thought; nodes that waited for
    them are READY."""
    mended = fault_rows.mend(uow, fault_id=fault_id)
    still_broken = fault_rows.broken_chips_by_pod(uow) if mended else {}
    for item in mended:
        node, held = node_rows.find_by_key(uow, item.node_key), slices.find(uow, item.node_key)
        # A node that has been moved since, by whatever it was, waits for something else.
        if (
            node is None
            or held is None
            or (node.state, node.version) != (NodeState.REPAIRING, item.node_version)
        ):
            continue
        if node.last_pod is None and not held.chips & still_broken.get(item.pod_id, 0):
            timers.put(uow, "node.repaired", item.node_key, item.node_version, uow.now)


def _slice_of(uow: UnitOfWork, node: NodeRecord) -> PlacedSlice:
    held = slices.find(uow, node.node_key)
    assert held is not None, node.node_key
    return held


def broken_host(uow: UnitOfWork, fleet: Fleet, rule: FaultRule, node: NodeRecord) -> Damage | None:
    """All chips of the host that the rule names, or of one by chance; None: the node has no such
    host."""
    hosts = _hosts(uow, fleet, node)
    worker = rule.worker
    if worker is None:
        worker = uow.streams.stream("faults").randrange(len(hosts))
    if worker >= len(hosts):
        return None
    if rule.effect == "host":
        return Damage(
            hosts[worker], f"host {worker} is down", (worker,), TIMEOUT, "EXECUTE_TIMED_OUT"
        )
    return Damage(hosts[worker], f"the chips of host {worker} have no power", (worker,))


def broken_chips(uow: UnitOfWork, fleet: Fleet, rule: FaultRule, node: NodeRecord) -> Damage:
    """As many chips of the slice as the rule says, by chance; all, where it has fewer."""
    chips = list(chips_of(_slice_of(uow, node).chips))
    count = min(int(rule.parameters["chips"]), len(chips))
    found = mask_of(uow.streams.stream("faults").sample(chips, count))
    return Damage(found, f"{count} chips are broken", _workers(_hosts(uow, fleet, node), found))


def broken_link(uow: UnitOfWork, fleet: Fleet, node: NodeRecord) -> Damage | None:
    """One link of the slice, by chance: neither of its ends is given away meanwhile. None: a slice
    of one chip."""
    held = _slice_of(uow, node)
    links = links_of_slice(fleet.pod(held.pod_id).shape, held.chips)
    if not links:
        return None
    ends = uow.streams.stream("faults").choice(links)
    first, second = chips_of(ends)
    text = f"the link between chips {first} and {second} is down"
    return Damage(ends, text, _workers(_hosts(uow, fleet, node), ends))


def _hosts(uow: UnitOfWork, fleet: Fleet, node: NodeRecord) -> tuple[int, ...]:
    held = _slice_of(uow, node)
    pod = fleet.pod(held.pod_id)
    return hosts_of_slice(pod.shape, held.origin, held.shape, held.chips, node.kind)


def _workers(hosts: Sequence[int], chips: int) -> tuple[int, ...]:
    return tuple(index for index, host in enumerate(hosts) if host & chips)
