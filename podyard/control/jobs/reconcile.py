"""Repairs of the loop: silent replicas, jobs whose node is no more, nodes whose job is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.clock import RealTime
from podyard.base.errors import Code, PodyardError
from podyard.control.compute import nodes
from podyard.control.jobs import gangs, own_nodes, type_change
from podyard.control.platform.agents import poke
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.jobs import attempts, replicas
from podyard.db.jobs import jobs as rows
from podyard.db.platform import agents
from podyard.db.store.timers import Timer
from podyard.db.store.transition import move, store
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.agent import AgentState
from podyard.domain.attempt import Attempt, AttemptOutcome
from podyard.domain.fleet import Fleet
from podyard.domain.job import Job
from podyard.domain.node import NODE, NODE_STATES_LOST, NodeRecord, NodeState
from podyard.domain.queued_resource import QueuedResourceState
from podyard.domain.replica import Replica, ReplicaOutcome, ReplicaState


def lose_silent_replicas(uow: UnitOfWork, watching_since: RealTime) -> None:
    """Ends the attempts of replicas that nobody has heard of for a whole lease.

    `watching_since`: since when this loop has watched without a gap. Before a full lease has passed
    nobody is declared lost, since they may have been unable to report while we were away. A process
    whose lease has lapsed has stopped itself; while its agent lives, the agent confirms that, so
    only a dead agent's replicas are written off here.
    """
    if uow.real_now < watching_since.plus_seconds(uow.leases.replica_seconds):
        return
    living = {agent.agent_id for agent in agents.list_living(uow)}
    live = replicas.list_live(uow)
    _end_on_removed(uow, [replica for replica in live if replica.agent_id not in living])
    for replica in live:
        if replica.lease_until is not None and replica.lease_until >= uow.real_now:
            continue
        attempt = attempts.get(uow, replica.attempt_id)
        if replica.agent_id not in living:
            reason = f"agent {replica.agent_id} is silent and the lease is over"
            gone = dataclasses.replace(
                replica,
                reason=replica.reason or reason,
                outcome=replica.outcome or ReplicaOutcome.RELEASED,
            )
            move(uow, replica, "exit", reason=reason, changed=gone)
        elif replica.state is ReplicaState.RUNNING or _long_started(uow, attempt):
            gangs.end(
                uow,
                attempt,
                AttemptOutcome.FAILED,
                f"replica {replica.rank} has not reported for its whole lease",
            )
        gangs.settle(uow, replica.attempt_id)


def _end_on_removed(uow: UnitOfWork, strays: Sequence[Replica]) -> None:
    """A removed agent is not heard any more, but its replicas report: they are told to stop, and
    their lease ends."""
    removed = (
        {agent.agent_id for agent in agents.list_all(uow) if agent.state is AgentState.REMOVED}
        if strays
        else ()
    )
    for attempt_id in sorted(
        {replica.attempt_id for replica in strays if replica.agent_id in removed}
    ):
        gangs.end(
            uow, attempts.get(uow, attempt_id), AttemptOutcome.PREEMPTED, "its agent was removed"
        )


def _long_started(uow: UnitOfWork, attempt: Attempt) -> bool:
    """A replica that its agent never started: two leases are time enough for a start."""
    return uow.real_now > attempt.started_real.plus_seconds(2 * uow.leases.replica_seconds)


def poke_stopping(uow: UnitOfWork) -> None:
    """Pokes agents again whose replicas have to stop: the first one may have been lost."""
    for agent_id in replicas.agents_to_stop(uow):
        poke(uow, agent_id)


def settle_attempts(uow: UnitOfWork) -> None:
    """Looks again at every attempt of which more may follow than that it runs."""
    for attempt_id in attempts.list_to_settle(uow):
        gangs.settle(uow, attempt_id)


def end_jobs_without_node(uow: UnitOfWork, fleet: Fleet) -> None:
    """A waiting job of which a node will not be READY again fails, or gets other nodes if the
    platform made these. All of its slices are made again, so that none is held while another waits
    for chips."""
    for job in rows.list_waiting(uow):
        slices = [node_rows.get_by_key(uow, job.node_key)]
        if job.spec.num_nodes > 1:
            slices = node_rows.of_job(uow, job.job_key)
        if job.spec.next_type:
            type_change.go_on(uow, fleet, job, slices)
            continue
        lost = [node for node in slices if node.state in _WILL_NOT_RUN]
        if not lost or _follows_slice(uow, job, lost[0]):
            continue
        if attempts.find_open(uow, job.job_key) is not None:
            continue
        if job.owns_node and (
            why := next(filter(None, (own_nodes.had_no_capacity(uow, one) for one in lost)), "")
        ):
            if not own_nodes.free_names(
                uow, fleet, [one for one in slices if one.state is not NodeState.GONE]
            ):
                continue
            if (error := own_nodes.make_next(uow, fleet, job, slices[0], why)) is not None:
                gangs.finish_job(uow, job, "fail", error.code, error.message)
            continue
        if job.owns_node and any(node.state_reason for node in lost):
            _replace_nodes(uow, fleet, job, slices)
            continue
        why = lost[0].state_reason or lost[0].wait_reason or "it was deleted"
        text = f"node {lost[0].node_id} is {lost[0].state} and will not be READY again: {why}"
        gangs.finish_job(uow, job, "fail", Code.ABORTED, text)
    _delete_left_behind(uow, fleet)


def on_timer(uow: UnitOfWork, fleet: Fleet, timer: Timer) -> None:
    """A simulated job comes to a mark; the node that was made for it goes with it."""
    gangs.on_mark(uow, timer)
    _delete_left_behind(uow, fleet)


def _delete_left_behind(uow: UnitOfWork, fleet: Fleet) -> None:
    for node in node_rows.list_left_behind(uow):
        if NODE.allows(node.state, "delete"):
            nodes.delete_as_platform(uow, fleet, node)


_WILL_NOT_RUN = NODE_STATES_LOST | {NodeState.DELETING, NodeState.GONE}


def _follows_slice(uow: UnitOfWork, job: Job, node: NodeRecord) -> bool:
    """Return whether the job waits for a slice of a multislice that is replaced; it goes on on the
    new node of that name."""
    queue = (
        None
        if node.queued_resource_key is None
        else queue_rows.find_by_key(uow, node.queued_resource_key)
    )
    if queue is None or queue.state not in (
        QueuedResourceState.PROVISIONING,
        QueuedResourceState.ACTIVE,
    ):
        return False
    again = node_rows.find(uow, node.project, node.zone, node.node_id)
    if again is None or again.queued_resource_key != node.queued_resource_key:
        return False
    if again.node_key != node.node_key:
        changed = dataclasses.replace(
            job, node_key=again.node_key, state_reason="its slice was created again"
        )
        store(uow, job, changed)
    return True


def _sweep_keys(uow: UnitOfWork, job: Job) -> set[str]:
    """The jobs of its sweep."""
    return (
        {one.job_key for one in rows.of_sweep(uow, job.project, job.zone, job.sweep_id)}
        if job.sweep_id
        else set()
    )


def _replace_nodes(uow: UnitOfWork, fleet: Fleet, job: Job, slices: Sequence[NodeRecord]) -> None:
    """The platform made these nodes for a job, and took one back: they are deleted, and then made
    again for the job."""
    if not own_nodes.free_names(uow, fleet, slices):
        return
    node = slices[0]
    place = (node.project, node.zone, node.node_id)
    if (again := node_rows.find(uow, *place)) is not None and again.job_key in _sweep_keys(
        uow, job
    ):
        store(
            uow,
            job,
            dataclasses.replace(job, node_key=again.node_key, state_reason="another node was made"),
        )
        return
    try:
        made = own_nodes.make_again(uow, fleet, job, node.zone, node.spec)
    except PodyardError as error:
        gangs.finish_job(
            uow,
            job,
            "fail",
            error.code,
            f"its node was taken back, and no other can be made: {error}",
        )
        return
    changed = dataclasses.replace(
        job, node_key=made.node_key, state_reason="another node is made for it"
    )
    store(uow, job, changed)
