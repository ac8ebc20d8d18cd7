"""Every change of a state, named by what people call the resource: the list that
`simulation/digest.py` hashes."""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import select

from podyard.base.clock import PlatformTime
from podyard.db.platform import state_changes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import operations
from podyard.db.tables.jobs import attempts, jobs, replicas
from podyard.db.tables.queue import queued_resources
from podyard.domain.state_change import StateChange


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """One change of a state. `event`: as in the table of its machine, such as `preempt`.

    `resource`: `machine/project/zone/name`, with `/attempt`, `/attempt/rank` or `/host index`
    behind the name of the job or node where it is one of theirs. Keys come from random streams and
    are not in it: an operation has its number in its zone instead. `reason_code`: see `decisions`.
    """

    at: PlatformTime
    resource: str
    event: str
    reason_code: str

    def line(self) -> str:
        """`nanoseconds|resource|event|reason code`"""
        return f"{self.at.nanos}|{self.resource}|{self.event}|{self.reason_code}"


def decisions(uow: UnitOfWork) -> list[Decision]:
    """All changes of states, in the order in which they were written.

    An event keeps its reason in words, which may be rewritten, so the reason code is made of words
    that are not prose: `FROM>TO by ACTOR`, where FROM (empty for a creation) and TO are states, and
    ACTOR is `loop`, the id of an agent, or a principal's email. After it, for these events only,
    what was decided:

    - creation of an operation: its verb, such as `delete`;
    - creation of an attempt: `step N hosts N batch N`, where it resumes and how large it is (`-`:
      the job's own);
    - creation of a replica: the id of its agent;
    - end of an operation, a job, or a queued resource with an error: the number of its
      google.rpc.Code;
    - end of an attempt or exit of a replica: the outcome, such as PREEMPTED (`-`: none).

    Labels that change and agents that register are no decisions: the lines of such events are left
    out.

    These columns are read as they stand now, so a list made in the middle of a run may lack
    outcomes. Texts, amounts, secrets and real times are not read.
    """
    names = _Names(uow)
    return [
        Decision(
            row.at,
            names.resource(row),
            row.event,
            " ".join([f"{row.from_state}>{row.to_state} by {row.actor}", *names.details(row)]),
        )
        for row in state_changes.after(uow, 0)
        if row.event != "relabel" and row.machine != "agent"
    ]


class _Names:
    """Names and codes of what has changed. Nodes and hosts are named by the changes themselves:
    hosts are deleted."""

    def __init__(self, uow: UnitOfWork) -> None:
        self._replicas = {row["replica_id"]: row for row in uow.all(_REPLICAS)}
        self._attempts = {row["attempt_id"]: row for row in uow.all(_ATTEMPTS)}
        self._jobs = {row["job_key"]: row for row in uow.all(_JOBS)}
        self._operations = {row["operation_id"]: row for row in uow.all(_OPERATIONS)}
        self._queued = {row["queued_resource_key"]: row for row in uow.all(_QUEUED)}
        self._nodes: dict[str, str] = {}
        self._numbers: dict[str, int] = {}  # of operations in their zones
        self._counts: dict[str, int] = {}  # operations by zone

    def resource(self, change: StateChange) -> str:
        machine, key = change.machine, change.resource_key
        if machine == "replica":
            replica = self._replicas[key]
            return f"replica/{self._attempt(replica['attempt_id'])}/{replica['rank']}"
        if machine == "attempt":
            return f"attempt/{self._attempt(key)}"
        if machine == "host":
            node, _, index = key.rpartition("-w-")
            return f"host/{self._nodes[node]}/{index}"
        _, project, _, zone, _, name = change.resource_name.split("/")
        if machine == "node":
            self._nodes[key] = f"{project}/{zone}/{name}"
        elif machine == "operation":
            name = str(self._number(f"{project}/{zone}", key))
        return f"{machine}/{project}/{zone}/{name}"

    def details(self, change: StateChange) -> list[str]:
        key = change.resource_key
        match change.machine, change.event:
            case "operation", "create":
                # A user may delete an operation that has ended.
                return [self._operations[key]["verb"]] if key in self._operations else []
            case "operation", "fail" | "cancel":
                return [str(self._operations[key]["error_code"])] if key in self._operations else []
            case "job", "fail":
                return [str(self._jobs[key]["error_code"])]
            case "queuedResource", "fail":
                return [str(self._queued[key]["error_code"])]
            case "attempt", "create":
                row = self._attempts[key]
                return [
                    "step",
                    _text(row["resume_step"]),
                    "hosts",
                    _text(row["host_count"]),
                    "batch",
                    _text(row["global_batch"]),
                ]
            case "attempt", "ended":
                return [_text(self._attempts[key]["outcome"])]
            case "replica", "create":
                return [self._replicas[key]["agent_id"]]
            case "replica", "exit":
                return [_text(self._replicas[key]["outcome"])]
        return []

    def _attempt(self, attempt_id: str) -> str:
        attempt = self._attempts[attempt_id]
        job = self._jobs[attempt["job_key"]]
        return f"{job['project']}/{job['zone']}/{job['job_id']}/{attempt['attempt']}"

    def _number(self, zone: str, key: str) -> int:
        if key not in self._numbers:
            self._numbers[key] = self._counts[zone] = self._counts.get(zone, 0) + 1
        return self._numbers[key]


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


_REPLICAS = select(
    replicas.c.replica_id,
    replicas.c.attempt_id,
    replicas.c.rank,
    replicas.c.agent_id,
    replicas.c.outcome,
)
_ATTEMPTS = select(attempts)
_JOBS = select(jobs.c.job_key, jobs.c.project, jobs.c.zone, jobs.c.job_id, jobs.c.error_code)
_OPERATIONS = select(operations.c.operation_id, operations.c.verb, operations.c.error_code)
_QUEUED = select(queued_resources.c.queued_resource_key, queued_resources.c.error_code)
