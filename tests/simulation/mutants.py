"""Deliberately wrong variants of the control plane, and the seeds of simulations that notice each
of them.

A mutant is put in place with pytest's monkeypatch. `python -m tests.simulation.mutant_table --seeds
NAME...` looks for seeds that notice it: the list below is kept with its help when the workload or
the control plane changes.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

import pytest
from sqlalchemy import update

from podyard.control.compute import nodes, queue_states, queued_resources
from podyard.control.compute import ports as compute_ports
from podyard.control.jobs import gangs, reconcile, reports
from podyard.control.platform import idempotency, operations
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import operations as operation_rows
from podyard.db.compute import quotas, slices
from podyard.db.jobs import snapshot as job_snapshot
from podyard.db.store import timers, transition
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import usage_events
from podyard.db.tables.compute import nodes as nodes_table
from podyard.db.tables.compute import operations as operations_table
from podyard.db.views import fleet as fleet_rows
from podyard.domain.machine import Machine
from podyard.domain.node import NodeRecord
from podyard.loop import steps
from podyard.pricing import bill, meter, rating
from tests.simulation.mutant import (
    ENDS_UNDER_A_JOB,
    LOST_AND_FOUND,
    MULTISLICE,
    SHORT_LIFE,
    TWO_FOR_ONE_POD,
    Altered,
    ignoring,
    mutant,
    no_timer,
)

# I1: chips belong to one node each, and are the right ones.


@mutant("I1", 0, 1, 2)
def placement_does_not_see_one_slice(patch: pytest.MonkeyPatch) -> None:
    load = fleet_rows.load

    def changed(*args: Any) -> Any:
        snapshot = load(*args)
        return dataclasses.replace(snapshot, slices=snapshot.slices[1:])

    patch.setattr(fleet_rows, "load", changed)


@mutant("I1", 0, 1, 2)
def a_slice_lacks_a_chip(patch: pytest.MonkeyPatch) -> None:
    place = nodes.place

    def changed(uow: UnitOfWork, fleet: Any, row: Any, action: Any) -> None:
        place(uow, fleet, row, dataclasses.replace(action, chips=action.chips & (action.chips - 1)))

    patch.setattr(nodes, "place", changed)


@mutant("I1", 0, 1, 2)
def chips_are_given_back_when_the_stop_begins(patch: pytest.MonkeyPatch) -> None:
    pass_begin = nodes._begin

    def changed(uow: UnitOfWork, node: NodeRecord, verb: str, seconds: Any) -> Any:
        if verb == "stop":
            slices.release(uow, node.node_key)
        return pass_begin(uow, node, verb, seconds)

    patch.setattr(nodes, "_begin", changed)


# I2: no chip is lost.


@mutant("I2", 0, 1, 2)
def chips_of_a_deleted_node_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slices, "release", lambda *_: None)


@mutant("I2", 0, 1, 2)
def the_release_of_a_preempted_node_is_dropped(patch: pytest.MonkeyPatch) -> None:
    no_timer(patch, "node.release")


# I3: a gang is whole.


@mutant("I3", 0, 2, 3)
def a_gang_starts_without_its_last_replica(patch: pytest.MonkeyPatch) -> None:
    add = gangs._add_replicas

    def changed(uow: UnitOfWork, attempt: Any, start: Any) -> None:
        count = max(1, len(start.agents) - 1)
        size = dataclasses.replace(start.size, process_count=count)
        add(uow, attempt, dataclasses.replace(start, size=size, agents=start.agents[:count]))

    patch.setattr(gangs, "_add_replicas", changed)


@mutant("I3", 2, 4, 7)
def the_next_attempt_does_not_wait_for_the_last(patch: pytest.MonkeyPatch) -> None:
    active = job_snapshot._active
    # where there is room, it starts
    patch.setattr(job_snapshot, "_needs_places", lambda _row: True)
    patch.setattr(
        job_snapshot,
        "_active",
        lambda *args: dataclasses.replace(active(*args), attempt=None, places={}),
    )


@mutant("I3", 0, 1, 2)
def a_node_that_leaves_ready_keeps_its_gang(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compute_ports, "end_gangs", lambda *_: None)


# I4: one history of steps.


@mutant("I4", 0, 1, 3)
def a_job_resumes_one_step_too_late(patch: pytest.MonkeyPatch) -> None:
    saved = gangs.job_history.committed_checkpoints

    def changed(*args: Any) -> Any:
        return [dataclasses.replace(item, step=item.step + 1) for item in saved(*args)]

    patch.setattr(gangs, "job_history", Altered(gangs.job_history, committed_checkpoints=changed))


@mutant("I4", 0, 1, 2)
def the_last_step_of_a_report_is_lost(patch: pytest.MonkeyPatch) -> None:
    keep = reports._keep_progress

    def changed(uow: UnitOfWork, replica: Any, attempt: Any, progress: Any) -> None:
        points = progress.points[:-1] if progress.state == "SUCCEEDED" else progress.points
        keep(uow, replica, attempt, dataclasses.replace(progress, points=points))

    patch.setattr(reports, "_keep_progress", changed)


@mutant("I4", 0, events=LOST_AND_FOUND)
def an_old_fence_may_report(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "_check_fence", lambda *_: None)
    patch.setattr(reports, "_keep_state", lambda *_: None)


# I5: nothing that was accepted is lost, and what waits says why.


@mutant("I5", 0, events=TWO_FOR_ONE_POD)
def a_queued_resource_does_not_say_why_it_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queued_resources, "apply_wait_group", lambda *_: None)


@mutant("I5", 0, 1, 2)
def a_job_does_not_say_why_it_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gangs, "_say_why", lambda *_: None)
    end = gangs.end
    patch.setattr(
        gangs, "end", lambda uow, attempt, outcome, reason: end(uow, attempt, outcome, "")
    )


@mutant("I5", 1, 2, 3)
def a_job_without_its_node_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconcile, "end_jobs_without_node", lambda *_args, **_options: None)


# I6: the bill is exact.


@mutant("I6", 0, 1, 2)
def usage_ends_a_second_late(patch: pytest.MonkeyPatch) -> None:
    periods = meter._periods

    def later(period: Any) -> Any:
        interval = dataclasses.replace(period.interval, end=period.interval.end.plus_seconds(1))
        return period if period.ended_by is None else dataclasses.replace(period, interval=interval)

    patch.setattr(meter, "_periods", lambda *args: [later(period) for period in periods(*args)])


@mutant("I6", 0, 2, 3)
def a_preempted_node_is_billed(patch: pytest.MonkeyPatch) -> None:
    policy = meter.node_policy
    states = frozenset({"READY", "PREEMPTED"})
    patch.setattr(
        bill,
        "node_policy",
        lambda usage: dataclasses.replace(policy(usage), billable_states=states),
    )


@mutant("I6", 4, 9, 11)
def a_first_minute_is_billed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(meter, "PREEMPT_FREE_SECONDS", 0)


@mutant("I6", 0, events=SHORT_LIFE)
def a_first_minute_is_free_for_who_deletes(patch: pytest.MonkeyPatch) -> None:
    is_free = meter._is_free

    def changed(first: Any, policy: Any) -> bool:
        return is_free(
            dataclasses.replace(first, ended_by="PREEMPTED") if first.ended_by else first, policy
        )

    patch.setattr(meter, "_is_free", changed)


@mutant("I6", 0, 1, 2)
def the_meter_does_not_hear_of_a_stop(patch: pytest.MonkeyPatch) -> None:
    insert = UnitOfWork.insert
    wrong = ignoring(
        insert, lambda uow, table, row, **_: table is usage_events and row["state"] == "STOPPING"
    )
    patch.setattr(UnitOfWork, "insert", wrong)


@mutant("I6", 0, 1, 2)
def usage_is_priced_for_one_chip_more(patch: pytest.MonkeyPatch) -> None:
    rate = rating.rate
    patch.setattr(bill, "rate", lambda metered, sku, quantity: rate(metered, sku, quantity + 1))


# I7: an operation ends exactly once.


@mutant("I7", 0, 1, 2)
def the_operation_of_a_start_is_left_open(patch: pytest.MonkeyPatch) -> None:
    end = operations._end

    def changed(uow: UnitOfWork, operation_id: Any, *rest: Any, **how: Any) -> None:
        operation = operation_rows.find(uow, operation_id)
        if operation is None or operation.verb != "start":
            end(uow, operation_id, *rest, **how)

    patch.setattr(operations, "_end", changed)


@mutant("I7", 0, 1, 2)
def a_failed_operation_also_has_a_response(patch: pytest.MonkeyPatch) -> None:
    end = operations._end

    def changed(*given: Any, **how: Any) -> None:
        end(*given, **{"response": {}, **how})

    patch.setattr(operations, "_end", changed)


@mutant("I7", 0, 1, 2)
def a_later_operation_rewrites_the_end_of_an_earlier_one(patch: pytest.MonkeyPatch) -> None:
    begin = operations.begin

    def changed(uow: UnitOfWork, target: Any, verb: str, *rest: Any, **options: Any) -> Any:
        earlier = operations_table.c.target_key == target.key
        ended = operations_table.c.ended.is_not(None)
        uow.execute(update(operations_table).where(earlier, ended).values(ended=uow.now))
        return begin(uow, target, verb, *rest, **options)

    patch.setattr(operations, "begin", changed)


# I8: nothing runs on chips that were given back.


@mutant("I8", 0, events=ENDS_UNDER_A_JOB)
def chips_are_given_back_before_the_processes_are_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nodes, "_busy", lambda *_: False)


@mutant("I8", 0, 1, 2)
def the_hosts_of_a_deleted_node_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node_rows, "remove_hosts", lambda *_: None)


# I9: quota.


@mutant("I9", 0, 1, 2)
def a_node_counts_twice(patch: pytest.MonkeyPatch) -> None:
    count = transition._count
    patch.setattr(
        transition, "_count", lambda uow, node, more: count(uow, node, 2 if more == 1 else more)
    )


@mutant("I9", 0, 1, 2)
def quota_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        transition, "_count", ignoring(transition._count, lambda uow, node, more: more < 0)
    )


@mutant("I9", 0, 5, 10)
def queued_resources_take_no_quota(patch: pytest.MonkeyPatch) -> None:
    holdings = quotas.holdings

    def changed(uow: UnitOfWork, project: str, usage_class: Any, *rest: Any) -> Any:
        alone = {row["node_id"] for row in uow.all(nodes_table.select())}
        return (item for item in holdings(uow, project, usage_class, *rest) if not alone)

    patch.setattr(quotas, "holdings", changed)


# I10: states follow their tables.


@mutant("I10", 0, 1, 2)
def a_stopped_node_is_ready_at_once(patch: pytest.MonkeyPatch) -> None:
    next_state = Machine.next_state

    def changed(self: Machine, state: str, event: str) -> str:
        return (
            "READY"
            if (self.name, state, event) == ("node", "STOPPED", "start")
            else next_state(self, state, event)
        )

    patch.setattr(Machine, "next_state", changed)


@mutant("I10", 0, 1, 4)
def a_preemption_is_written_past_the_writer_of_states(patch: pytest.MonkeyPatch) -> None:
    def changed(uow: UnitOfWork, node: NodeRecord, event: str, reason: str) -> Any:
        mine = nodes_table.c.node_key == node.node_key
        uow.connection.execute(
            update(nodes_table).where(mine).values(state="PREEMPTED", state_reason=reason)
        )
        return node_rows.get_by_key(uow, node.node_key)

    patch.setattr(nodes, "take_back", changed)


# I11: a request that is sent again changes nothing again.


@mutant("I11", 0, 1, 2)
def request_ids_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        idempotency, "once", lambda uow, who, project, method, request_id, body, act: act()
    )


@mutant("I11", 0, 1, 2)
def a_request_is_remembered_without_its_operation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(idempotency, "_act", lambda uow, key, act: act())


# I13: time and timers.


@mutant("I13", 0, 1, 2)
def the_timer_of_a_creation_is_dropped(patch: pytest.MonkeyPatch) -> None:
    no_timer(patch, "node.created")


@mutant("I13", 0, 1, 2)
def the_timer_of_a_maintenance_is_dropped(patch: pytest.MonkeyPatch) -> None:
    no_timer(patch, "node.repaired")


@mutant("I13", 0, 1, 2)
def timers_are_fired_by_their_id(patch: pytest.MonkeyPatch) -> None:
    from podyard.db.tables.base import timers as table

    first = timers._FIRST.order_by(None).order_by(table.c.timer_id.desc())
    patch.setattr(timers, "_FIRST", first)


# I14: queued resources.


@mutant("I14", 3, 7, 11)
def valid_until_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    fail = queued_resources._fail
    late = ignoring(fail, lambda uow, fleet, row, code, message: "not fulfilled by" in message)
    patch.setattr(queued_resources, "_fail", late)


@mutant("I14", 0, 1, 2)
def nodes_outlive_their_queued_resource(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queued_resources, "_delete_nodes", lambda *_: None)


@mutant("I14", 0, events=MULTISLICE)
def active_with_the_first_node(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue_states, "all", any, raising=False)


# I15: who may be taken back.


@mutant("I15", 0, 1, 2)
def on_demand_nodes_are_preempted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        nodes, "INTERRUPTIBLE", frozenset({*nodes.INTERRUPTIBLE, nodes.UsageClass.ON_DEMAND})
    )


@mutant("I15", 0, 1, 2)
def a_preemptible_node_outlives_its_day(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nodes, "_expire", lambda *_: None)


# I16: every change has its line.


@mutant("I16", 0, 1, 2)
def a_stop_leaves_no_line(patch: pytest.MonkeyPatch) -> None:
    wrong = ignoring(
        transition._record_event, lambda uow, kind, record, event, *rest: event == "stopped"
    )
    patch.setattr(transition, "_record_event", wrong)


@mutant("I16", 0, 1, 2)
def the_loop_does_not_say_who_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "ACTOR", "")


# I17: a seed tells everything.


@mutant("I17", 0, 1, 2)
def events_have_ids_from_elsewhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transition, "row_id", lambda rng, prefix: f"{prefix}-{secrets.token_hex(12)}")


@mutant("I17", 0, 1, 2)
def nodes_have_ids_from_elsewhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nodes, "row_id", lambda rng, prefix: f"{prefix}-{secrets.token_hex(12)}")
