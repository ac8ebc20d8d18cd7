"""Nodes: what users ask for, and what follows from it in platform time.

A use case that takes time begins an operation and sets the node into a passing state; the loop places the slice and
fires the timers that end it. Each change of state goes through `move`, so that the meter hears of it in the same unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, func, select, update

from podyard.base import ids
from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.base.ids import check_resource_id, row_id
from podyard.control import access, disks, lookup, operations, queue_states, quota, spending
from podyard.control.gangs import end as end_attempt
from podyard.db import attempts, hosts, replicas, timers
from podyard.db import faults as fault_rows
from podyard.db import jobs as job_rows
from podyard.db import nodes as rows
from podyard.db.tables_compute import nodes, slices
from podyard.db.transition import NODES, born_row, move_row
from podyard.db.unit_of_work import Stale, UnitOfWork
from podyard.domain.attempt import AttemptOutcome
from podyard.domain.fleet import Fleet, Zone
from podyard.domain.host import default_service_account
from podyard.domain.node import HEALTHY, INTERRUPTIBLE, NODE, Node, NodeSpec, UsageClass, kind_of, node_name
from podyard.domain.operation import Operation
from podyard.domain.plan import Place, Wait
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import NodeRequest, QueuedResourceRecord
from podyard.domain.reservation import check_asked
from podyard.domain.slice import PREEMPTIBLE_LIFE_SECONDS
from podyard.hardware import runtime_versions
from podyard.hardware.accelerator_types import AcceleratorType

_V1 = ("V1", "V1_ALPHA1")  # whose nodes name TensorFlow versions
_AS_PLANNED = (
    select(nodes).where(nodes.c.node_key == bindparam("key"), nodes.c.version == bindparam("seen")).with_for_update()
)
QUIET_RETRY_SECONDS = 0.25  # how soon a node looks again whether the last process on its chips is gone
_BACK_TO_READY = ("node.created", "node.started", "node.restarted", "node.reimaged", "node.repaired")


def create(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    spec: NodeSpec,
    *,
    job_key: str | None = None,
    initial_state_reason: str = "",
) -> Operation:
    """Accepts a node: row, operation and first event, in one unit. The loop places it."""
    principal.require("tpu.nodes.create", project, f"projects/{project}/locations/{zone}")
    check_resource_id(node_id, "nodeId")
    kind = check_spec(uow, fleet, zone, spec)
    check_asked(spec.reservation_name, project, zone)
    check_account(uow, principal, project, spec)
    check_free(uow, project, zone, node_id, spec)
    quota.check(uow, fleet, project, zone, kind, spec.usage_class)
    spending.admit(uow, project, [(node_id, spec)], of_job=job_key is not None)
    row = _new_row(uow, project, zone, node_id, spec) | {"job_key": job_key, "state_reason": initial_state_reason}
    detail = spending.price_warning(uow, zone, spec)
    operation = operations.begin(uow, operations.of_node(row), "create", detail)
    born_row(uow, NODES, {**row, "pending_operation": operation.operation_id}, reason="requested")
    return operation


def make(uow: UnitOfWork, queued: QueuedResourceRecord, request: NodeRequest) -> Mapping[str, Any]:
    """The row of a node that a queued resource gets: CREATING, without an operation of its own. The caller has checked
    that the name is free, and holds the project's row."""
    row = _new_row(uow, queued.project, queued.zone, request.node_id, request.spec)
    row |= {
        "queued_resource_key": queued.queued_resource_key,
        "queued_resource": queued.name,
        "slice_index": request.slice_index,
        "slice_count": request.slice_count,
    }
    born_row(uow, NODES, row, reason="made for its queued resource")
    return rows.row_by_key(uow, row["node_key"])


def _new_row(uow: UnitOfWork, project: str, zone: str, node_id: str, spec: NodeSpec) -> dict[str, Any]:
    kind = kind_of(spec.accelerator_type, spec.topology)
    stream = uow.streams.stream("nodes")
    return {
        "node_key": row_id(stream, "node"),
        "number": stream.getrandbits(63),
        "project": project,
        "zone": zone,
        "node_id": node_id,
        "live_name": node_name(project, zone, node_id),
        "accelerator_type": kind.name,
        "topology": kind.topology.text,
        "usage_class": str(spec.usage_class),
        "runtime_version": spec.runtime_version,
        "spec": rows.from_spec(spec),
        "created": uow.now,
        "ready_since": None,
        "state_reason": "",
        "wait_reason": "",
        "pending_operation": None,
        "host_count": kind.host_count,
        "first_address": 0,
        "job_key": None,
    }


def get(uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str) -> Node:
    return rows.to_node(uow, lookup.node(uow, principal, "tpu.nodes.get", project, zone, node_id))


def list_nodes(uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str | None) -> list[Node]:
    """All live nodes of one zone, or (None: `locations/-`) of all zones."""
    principal.require("tpu.nodes.list", project, f"projects/{project}/locations/{zone or '-'}")
    if zone is not None:
        zone_of(fleet, zone)
    return rows.to_nodes(uow, rows.rows(uow, project, zone))


def patch(
    uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str, changes: Mapping[str, Any]
) -> Operation:
    """Sets fields of the spec: names of `NodeSpec`, or paths of `extras` by their wire names; None clears."""
    principal.require("tpu.nodes.update", project, node_name(project, zone, node_id))
    access.project_row(uow, project)  # of two updates at once, the second sees what the first has set
    row = lookup.node(uow, principal, "tpu.nodes.update", project, zone, node_id)
    if row["state"] not in ("READY", "STOPPED"):
        raise bad_state("update", row)
    spec = dict(row["spec"])
    spec["extras"] = dict(spec["extras"])
    for path, value in changes.items():
        *parents, name = path.split(".") if path in spec else f"extras.{path}".split(".")
        holder = spec
        for parent in parents:
            holder[parent] = holder = dict(holder.get(parent, {}))
        if value is None:
            holder.pop(name, None)
        else:
            holder[name] = value
    if {"networkConfig", "networkConfigs"} <= set(spec["extras"]):
        raise invalid(f"node {node_id} has networkConfigs, which exclude networkConfig", "networkConfig")
    disks.check(uow, project, row["node_key"], rows.to_spec(spec))
    guard = update(nodes).where(nodes.c.node_key == row["node_key"], nodes.c.version == row["version"])
    if uow.execute(guard.values(spec=spec)).rowcount != 1:
        raise Stale(NODE.name, row["node_key"])
    operation_id = operations.begin(uow, operations.of_node(row), "update").operation_id
    operations.succeed(uow, operation_id, rows.frozen(uow, rows.row_by_key(uow, row["node_key"])))
    return operations.get(uow, principal, project, zone, operation_id)


def stop(uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str) -> Operation:
    row = lookup.node(uow, principal, "tpu.nodes.stop", project, zone, node_id)
    if row["host_count"] > 1:
        raise bad_request(f"stop is only supported for nodes with one host; this one has {row['host_count']}", row)
    if row["state"] != "READY":
        raise bad_state("stop", row)
    return _begin(uow, row, "stop", fleet.timings.stop_seconds)


def start(uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str) -> Operation:
    zone_of(fleet, zone)
    row = lookup.node(uow, principal, "tpu.nodes.start", project, zone, node_id)
    if row["state"] != "STOPPED":
        raise bad_state("start", row)
    return _begin(uow, row, "start", None)


def reimage(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str, version: str
) -> Operation:
    """Gives the node another runtime version (v1: TensorFlow version); empty: the same one anew. Its jobs end."""
    row = lookup.node(uow, principal, "tpu.nodes.reimage", project, zone, node_id)
    if row["state"] != "READY":
        raise bad_state("reimage", row)
    if version:
        _check_version(fleet, "V1", version, kind_of(row["accelerator_type"], row["topology"]))
    chosen = version or row["runtime_version"]
    operation = operations.begin(uow, operations.of_node(row), "reimage")
    changes = {"runtime_version": chosen, "spec": {**row["spec"], "runtime_version": chosen}}
    reason, seconds = f"reimage to {chosen} requested", fleet.timings.reimage_seconds
    pending = operation.operation_id
    pass_into(uow, row, "reimage", "reimaged", seconds, reason, pending_operation=pending, **changes)
    return operation


def delete(uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, zone: str, node_id: str) -> Operation:
    row = lookup.node(uow, principal, "tpu.nodes.delete", project, zone, node_id)
    if row["state"] == "DELETING":
        raise bad_state("delete", row)
    if rule := fault_rows.lost_while_deleted(uow, row):
        operation_id = operations.begin(uow, operations.of_node(row), "delete").operation_id
        row = {**row, "pending_operation": operation_id}
        with fault_rows.acting(uow):
            _take_back(uow, row, "preempt", rule.reason)
        return operations.find(uow, project, zone, row["pending_operation"])
    return _begin(uow, row, "delete", fleet.timings.delete_seconds)


def delete_as_platform(uow: UnitOfWork, fleet: Fleet, row: Mapping[str, Any]) -> None:
    """Deletes a node that the platform made, for a job or a queued resource."""
    if NODE.allows(row["state"], "delete"):
        _begin(uow, row, "delete", fleet.timings.delete_seconds)


def preempt(uow: UnitOfWork, principal: Principal, project: str, zone: str, node_id: str) -> Node:
    """Takes a preemptible or spot node back now. It stays listed, and holds quota, until it is deleted."""
    row = lookup.node(uow, principal, "podyard.nodes.preempt", project, zone, node_id)
    if row["usage_class"] not in INTERRUPTIBLE:
        raise failed_precondition(f"node {node_id} is {row['usage_class']}: only preemptible and spot are preempted")
    moved = _take_back(uow, row, "preempt", "preempted on request")
    return rows.to_node(uow, moved)


def apply_place(uow: UnitOfWork, fleet: Fleet, action: Place) -> None:
    """Gives the node its slice and hosts. A node that has changed since the plan was made is left alone."""
    row = as_planned(uow, action.node_key, action.version)
    if row is not None:
        place(uow, fleet, row, action)


def place(uow: UnitOfWork, fleet: Fleet, row: Mapping[str, Any], action: Place) -> None:
    """Gives the node of `row` the chips of `action`, and hosts if it has none yet. A timer ends its creation or start;
    what takes no time has ended at once."""
    slice_row = {
        "slice_id": row_id(uow.streams.stream("slices"), "slice"),
        "node_key": row["node_key"],
        "zone": row["zone"],
        "pod_id": action.pod_id,
        "origin": list(action.origin),
        "shape": list(action.shape),
        "chips": f"{action.chips:x}",
        "created": uow.now,
    }
    uow.insert(slices, slice_row)
    values: dict[str, Any] = {"wait_reason": "", "reservation_key": action.reservation_key, "reclaim_at": None}
    if row["first_address"] == 0:
        values["first_address"] = rows.next_address(uow)
        rows.add_hosts(uow, row["node_key"], values["first_address"], row["host_count"])
    event = {"STARTING": "started", "REPAIRING": "repaired"}.get(row["state"], "created")
    seconds = fleet.timings.start_seconds if event == "started" else fleet.timings.creation_seconds(row["host_count"])
    lost = event == "created" and fault_rows.lost_while_created(uow, row, uow.now.plus_seconds(seconds / 2))
    if seconds == 0 and not lost:
        _ready(uow, row, event, **values)
        return
    uow.update(nodes, {"node_key": row["node_key"]}, values)
    timers.put(uow, f"node.{event}", row["node_key"], row["version"], uow.now.plus_seconds(seconds))


def apply_wait(uow: UnitOfWork, action: Wait) -> None:
    """A request that the fleet cannot place: with `stockout` its operation fails and the node vanishes."""
    row = as_planned(uow, action.node_key, action.version)
    if row is None or (action.stockout and action.fault and not fault_rows.count(uow, action.fault)):
        return
    if not action.stockout:
        uow.update(nodes, {"node_key": row["node_key"]}, {"wait_reason": action.reason})
        return
    why = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": action.code.name,
        "domain": "podyard",
        "metadata": {"why": action.reason},
    }
    operations.fail(uow, row["pending_operation"], action.code, action.message, [why])
    move_row(uow, NODES, row, "fail", reason=action.reason, pending_operation=None, **_gone(row["state"] == "CREATING"))


def on_timer(uow: UnitOfWork, timer: Mapping[str, Any]) -> bool:
    """What a node's timer does. A timer of a node that has moved on since does nothing. Returns whether it was put off
    because processes are on the chips: they end in real time."""
    row = rows.find(uow, timer["resource_key"])
    if row is None or (timer["version"] != 0 and timer["version"] != row["version"]):
        return False
    kind = timer["kind"]
    if kind in ("node.stopped", "node.deleted", "node.release") and _busy(uow, row["node_key"]):
        # Chips are given back only when the last process on them is gone.
        again = uow.now.plus_seconds(QUIET_RETRY_SECONDS)
        timers.put(uow, kind, row["node_key"], timer["version"], again)
        return True
    if kind in _BACK_TO_READY:
        _ready(uow, row, kind.removeprefix("node."))
    elif kind == "node.stopped":
        rows.release_slice(uow, row["node_key"])
        moved = move_row(uow, NODES, row, "stopped", reason="stopped", pending_operation=None)
        operations.succeed(uow, row["pending_operation"], rows.frozen(uow, moved))
    elif kind == "node.deleted":
        rows.release_slice(uow, row["node_key"])
        rows.remove_hosts(uow, row["node_key"])
        timers.drop(uow, row["node_key"])
        moved = move_row(uow, NODES, row, "deleted", reason="deleted", pending_operation=None, **_gone(True))
        # v1's delete answers with the node, later versions with nothing.
        operations.succeed(uow, row["pending_operation"], rows.frozen(uow, moved))
        _tell_queue(uow, row)
    elif kind == "node.release":
        rows.release_slice(uow, row["node_key"])
        _tell_queue(uow, row)
    elif kind == "node.expire":
        _expire(uow, row)
    elif kind == "node.reclaim" and _under_notice(uow, row):
        _take_back(uow, row, "preempt", "preempted: its chips are needed for another request")
    return False


def _ready(uow: UnitOfWork, row: Mapping[str, Any], event: str, **values: Any) -> None:
    values |= {"ready_since": uow.now, "pending_operation": None, "wait_reason": ""}
    if event == "repaired":
        values |= {"health": HEALTHY, "health_description": "", "maintenance_workers": None}
        values |= {"upcoming_maintenance": None, "symptoms": None, "last_pod": None}
    if event == "created":
        values["termination"] = _end_of_life(uow, row)
    moved = move_row(uow, NODES, row, event, reason="ready", **values)
    operations.succeed(uow, row["pending_operation"], rows.frozen(uow, moved))
    if event == "created" and moved["termination"] is not None:
        timers.put(uow, "node.expire", row["node_key"], 0, max(uow.now, moved["termination"]))
    _tell_queue(uow, row)


def _end_of_life(uow: UnitOfWork, row: Mapping[str, Any]) -> PlatformTime | None:
    """When a node that is READY for the first time will be TERMINATED: the first of the limits that it has."""
    spec = rows.to_spec(row["spec"])
    ends = []
    if row["usage_class"] == UsageClass.PREEMPTIBLE:
        ends.append(row["created"].plus_seconds(PREEMPTIBLE_LIFE_SECONDS))
    if spec.max_run_seconds is not None:
        ends.append(uow.now.plus_seconds(spec.max_run_seconds))
    if spec.termination_time is not None:
        ends.append(PlatformTime(spec.termination_time))
    return min(ends, default=None)


def _expire(uow: UnitOfWork, row: Mapping[str, Any]) -> None:
    if NODE.allows(row["state"], "terminate"):
        limited = row["termination"] == row["created"].plus_seconds(PREEMPTIBLE_LIFE_SECONDS)
        preemptible = limited and row["usage_class"] == UsageClass.PREEMPTIBLE
        reason = "a preemptible node lives for 24 hours at most" if preemptible else "the end of its run time"
        _take_back(uow, row, "terminate", reason)
    elif row["state"] == "STOPPING":
        timers.put(uow, "node.expire", row["node_key"], 0, uow.now.plus_seconds(QUIET_RETRY_SECONDS))


def pass_into(
    uow: UnitOfWork, row: Mapping[str, Any], event: str, end: str, seconds: float | None, reason: str, **values: Any
) -> Mapping[str, Any]:
    """Moves a READY node into the passing state of `event`, which ends its jobs; the event `end` makes it READY again
    after `seconds` of platform time (None: when whoever calls this sets the timer)."""
    moved = move_row(uow, NODES, row, event, reason=reason, **values)
    _end_jobs(uow, row, f"node {row['node_id']}: {reason}")
    if seconds is not None:
        timers.put(uow, f"node.{end}", row["node_key"], moved["version"], uow.now.plus_seconds(seconds))
    return moved


def _begin(uow: UnitOfWork, row: Mapping[str, Any], verb: str, seconds: float | None) -> Operation:
    """Moves the node into the passing state of `verb`; `seconds`: when the timer of its end is due."""
    if row["pending_operation"] is not None:
        text = f"The operation was cancelled: {verb} of the node was requested"
        operations.fail(uow, row["pending_operation"], Code.CANCELLED, text)
    operation = operations.begin(uow, operations.of_node(row), verb)
    moved = move_row(uow, NODES, row, verb, reason=f"{verb} requested", pending_operation=operation.operation_id)
    if verb != "start":
        _end_jobs(uow, row, f"node {row['node_id']}: {verb} requested")
    if seconds is not None:
        kind = {"stop": "node.stopped", "delete": "node.deleted"}[verb]
        timers.put(uow, kind, row["node_key"], moved["version"], uow.now.plus_seconds(seconds))
    _tell_queue(uow, row)
    return operation


def _take_back(uow: UnitOfWork, row: Mapping[str, Any], event: str, reason: str) -> Mapping[str, Any]:
    if row["pending_operation"] is not None:
        operations.fail(uow, row["pending_operation"], Code.CANCELLED, f"The node was taken back: {reason}")
    values: dict[str, Any] = {"pending_operation": None, "upcoming_maintenance": None, "maintenance_workers": None}
    values |= {"health": HEALTHY, "health_description": "", "symptoms": None}
    moved = move_row(uow, NODES, row, event, reason=reason, state_reason=reason, **values)
    _end_jobs(uow, row, f"node {row['node_id']}: {reason}")
    timers.put(uow, "node.release", row["node_key"], moved["version"], uow.now)
    _tell_queue(uow, row)
    return moved


take_back = _take_back  # a fault does the same


def _under_notice(uow: UnitOfWork, row: Mapping[str, Any]) -> bool:
    """Whether a node's notice is over and it can be taken back; it may have been stopped, and started on other chips,
    since it was given."""
    return row["reclaim_at"] is not None and row["reclaim_at"] <= uow.now and NODE.allows(row["state"], "preempt")


def _tell_queue(uow: UnitOfWork, row: Mapping[str, Any]) -> None:
    if row["queued_resource_key"] is not None:
        queue_states.settle(uow, row["queued_resource_key"])


def _end_jobs(uow: UnitOfWork, row: Mapping[str, Any], reason: str) -> None:
    for job in job_rows.active_on_node(uow, row["node_key"]):
        attempt = attempts.find_open(uow, job.job_key)
        if attempt is not None:
            end_attempt(uow, attempt, AttemptOutcome.PREEMPTED, reason)


def _busy(uow: UnitOfWork, node_key: str) -> bool:
    return replicas.is_any_on(uow, node_key) or hosts.is_busy(uow, node_key)


def check_account(uow: UnitOfWork, principal: Principal, project: str, spec: NodeSpec) -> None:
    """Raises PERMISSION_DENIED when the node's service account may do more than the caller: the node acts as it. Locks
    the project's row: who decides on its quota takes turns."""
    number = access.project_row(uow, project).number
    named = spec.extras.get("serviceAccount", {}).get("email")
    access.require_no_more(uow, principal, named or default_service_account(number))


def check_free(uow: UnitOfWork, project: str, zone: str, node_id: str, spec: NodeSpec) -> None:
    """Raises ALREADY_EXISTS when a node has the name, and what `disks.check` raises when its disks are in use."""
    if rows.row_of(uow, project, zone, node_id) is not None:
        raise PodyardError(Code.ALREADY_EXISTS, f"Resource '{node_name(project, zone, node_id)}' already exists")
    disks.check(uow, project, None, spec)


def check_spec(uow: UnitOfWork, fleet: Fleet, zone: str, spec: NodeSpec) -> AcceleratorType:
    """The type of the node; raises INVALID_ARGUMENT for what the zone does not offer, or no node can be."""
    zone_of(fleet, zone)
    kind = kind_of(spec.accelerator_type, spec.topology)
    fleet.check_offered(zone, kind, spec.usage_class)
    _check_version(fleet, spec.api_version, spec.runtime_version, kind)
    if spec.max_run_seconds is not None and spec.max_run_seconds <= 0:
        raise invalid("the run duration must be more than zero seconds", "schedulingConfig.maxRunDuration")
    if spec.termination_time is not None and spec.termination_time <= uow.now.nanos:
        raise invalid("the termination time lies in the past", "schedulingConfig.terminationTimestamp")
    disks.check_modes(kind, spec)
    return kind


def _check_version(fleet: Fleet, api_version: str, version: str, kind: AcceleratorType) -> None:
    """v1's field holds TensorFlow versions, and so it does for nodes that were made by v2; a runtime version that v1
    shows for such a node may be sent back."""
    allowed = fleet.unknown_runtime_versions
    if api_version in _V1 and version not in runtime_versions.RUNTIME_VERSIONS:
        runtime_versions.check_tensorflow(version, unknown_allowed=allowed)
    else:
        runtime_versions.check_serves(version, kind.generation, unknown_allowed=allowed)


def as_planned(uow: UnitOfWork, node_key: str, version: int) -> Mapping[str, Any] | None:
    """The node that a plan was made for, locked; None when it has changed since."""
    return uow.first(_AS_PLANNED, {"key": node_key, "seen": version})


def _gone(gone: bool) -> dict[str, Any]:
    return {"live_name": None} if gone else {}


def bad_state(verb: str, row: Mapping[str, Any]) -> PodyardError:
    return bad_request(f"{verb} is not supported while in state {row['state']}", row)


def bad_request(what: str, row: Mapping[str, Any]) -> PodyardError:
    return ids.bad_request(what, row["node_key"], row["version"])


def zone_of(fleet: Fleet, zone: str) -> Zone:
    """The zone; a missing one is refused in Google's words, which clients match on."""
    found = fleet.zones.get(zone)
    if found is None:
        raise PodyardError(Code.PERMISSION_DENIED, f"Location {zone} is not found or access is unauthorized.")
    return found


def counts(uow: UnitOfWork, project: str) -> dict[str, int]:
    """How many live nodes of the project are in each state."""
    query = select(nodes.c.state, func.count().label("nodes")).where(
        nodes.c.project == project, nodes.c.live_name.is_not(None)
    )
    return {row["state"]: row["nodes"] for row in uow.all(query.group_by(nodes.c.state).order_by(nodes.c.state))}
