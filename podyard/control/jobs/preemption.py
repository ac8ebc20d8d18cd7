"""Slices that the scheduler takes back for others: first notice, so that jobs can save, then the
node is PREEMPTED."""

from __future__ import annotations

import dataclasses

from podyard.base.clock import PlatformTime
from podyard.control.jobs import gangs
from podyard.db.compute import nodes as node_rows
from podyard.db.jobs import attempts
from podyard.db.store import timers
from podyard.db.store.transition import store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.attempt import AttemptOutcome
from podyard.domain.fleet import Fleet
from podyard.domain.node import NODE, NodeRecord
from podyard.domain.plan import Preempt

RECLAIM_TIMER = "node.reclaim"  # `control/compute/nodes.on_timer` takes the node back when it fires


def apply(uow: UnitOfWork, fleet: Fleet, action: Preempt) -> None:
    """Gives the node notice: its jobs are asked to save and to leave, and no job starts on it any
    more. After the fleet's `preemption_notice_seconds` of platform time it is taken back, whether
    they have or not.

    A node that has changed since the plan was made, or is under notice already, is left alone.
    """
    node = node_rows.find_as_planned(uow, action.node_key, action.version)
    if node is None or node.reclaim_at is not None or not NODE.allows(node.state, "preempt"):
        return
    at = uow.now.plus_seconds(fleet.timings.preemption_notice_seconds)
    timers.put(uow, RECLAIM_TIMER, node.node_key, 0, at)
    give_notice(uow, node, at, action.reason)


def give_notice(uow: UnitOfWork, node: NodeRecord, at: PlatformTime, reason: str) -> None:
    """Asks the node's jobs to save and to leave, and lets none start any more. The caller takes the
    notice back."""
    store(uow, node, dataclasses.replace(node, reclaim_at=at))
    text = f"node {node.node_id} is taken back at {at.rfc3339()}: {reason}"
    for attempt in attempts.list_open_on_node(uow, node.node_key):
        gangs.ask_to_yield(uow, attempt, AttemptOutcome.PREEMPTED, text)
