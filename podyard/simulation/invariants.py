"""The invariants while a simulation runs: after each step what has changed, each day all that
lives, in the end all.

A step is cheap to check because it looks at new lines of history and new slices only. What it finds
suspicious, and what only the whole database can tell, `control/checks/fsck` judges.
"""

from __future__ import annotations

import hashlib
import json

from podyard.base.clock import PlatformTime
from podyard.control.checks import fsck
from podyard.control.checks.fsck import Violation
from podyard.control.checks.fsck_chips import HOLDING
from podyard.control.checks.fsck_history import edge
from podyard.control.checks.fsck_requests import CAN_BE_TAKEN_BACK, ended_wrongly
from podyard.control.checks.fsck_violation import GRACE_SECONDS
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import operations as operation_rows
from podyard.db.compute import slices
from podyard.db.jobs import replicas
from podyard.db.platform import state_changes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views import watch
from podyard.domain.attempt import AttemptState
from podyard.domain.node import BILLABLE_NODE_STATES
from podyard.domain.operation import Operation
from podyard.domain.state_change import StateChange
from podyard.pricing.current_card import default_rate_card
from podyard.simulation.world import World

# real time: two leases of a replica, and the turns in which they are noticed
PROCESS_SECONDS_MAX = 60.0


class Watch:
    """Looks at one world. `found` are the violations so far, each once. `every_seconds` of platform
    time it looks at
    all that lives."""

    def __init__(self, world: World, every_seconds: float) -> None:
        self._world = world
        self._every_seconds = every_seconds
        self.found: list[Violation] = []
        self.last_seq = 0
        self._checked_seq = 0
        self._next_look = every_seconds
        self._attempts: dict[str, str] = {}  # by job: its open attempt
        self._now = world.now()
        self._last: dict[str, StateChange] = {}  # the newest line of each resource
        self._chips: dict[str, dict[str, int]] = {}  # by pod: slice -> chips, as last seen
        self._since = self._now
        # of all lines: timers fire in order, and nobody acts in the past
        self._newest = PlatformTime(0)
        self._endings: dict[str, str] = {}  # of each operation that has ended: what it said then
        self._strange_since: dict[str, float] = {}
        self._written = -1
        self._silent: set[str] = set()

    def step(self) -> None:
        """After each walk of the clock and what has happened at its end."""
        suspicious = self._world.database.read(self._step)
        if suspicious or self._world.seconds() >= self._next_look:
            self.check(self._checked_seq)
            while self._next_look <= self._world.seconds():
                self._next_look += self._every_seconds

    def end(self) -> None:
        """The whole database, and everything that was remembered of it."""
        self._world.database.read(self._step)
        self.check(0)
        self._world.database.read(self._check_unchanged)

    def check(self, after_seq: int) -> None:
        card, fleet = default_rate_card(), self._world.fleet
        self._add(self._world.database.read(lambda uow: fsck.check(uow, fleet, card, after_seq)))
        self._checked_seq = self.last_seq

    def _add(self, violations: list[Violation]) -> None:
        known = {(item.invariant, item.resource, item.detail) for item in self.found}
        self.found += [
            item for item in violations if (item.invariant, item.resource, item.detail) not in known
        ]

    def _step(self, uow: UnitOfWork) -> bool:
        """Return whether the whole database should be looked at."""
        if uow.now < self._now:
            text = f"the platform clock went back to {uow.now.rfc3339()}"
            self._add([Violation("I13", self._now, "clock", text)])
        self._now = uow.now
        strange = [
            *self._world.told.strange,
            *(item for agent in self._world.agents for item in agent.strange),
        ]
        self._add([Violation(which, uow.now, name, detail) for which, name, detail in strange])
        suspicious = False
        written = self._world.database.write_count("state_changes", "slices")
        if written != self._written:
            self._written = written
            for change in state_changes.after(uow, self.last_seq):
                suspicious |= self._line(uow, change)
                self.last_seq = change.seq
            suspicious |= self._overlap(uow)
        suspicious |= self._silence(uow)
        self._zombies()
        return suspicious

    def _silence(self, uow: UnitOfWork) -> bool:
        """Return whether something has waited for long without a reason, and was not looked at for
        that before."""
        long_ago = uow.now.plus_seconds(-GRACE_SECONDS)
        silent = {
            key
            for key in watch.silent(uow, long_ago)
            if key not in self._last or self._last[key].at < long_ago
        }
        news = not silent <= self._silent
        self._silent = silent
        return news

    def _line(self, uow: UnitOfWork, change: StateChange) -> bool:
        key = change.resource_key
        before = self._last.get(key)
        self._add(list(edge(change, before)))
        if change.at < self._newest:
            text = f"{change.event} is told after what happened at {self._newest.rfc3339()}"
            self._add([Violation("I13", change.at, change.resource_name, text)])
        self._newest = max(self._newest, change.at)
        self._last[key] = change
        if change.machine == "operation" and change.to_state != "RUNNING":
            return self._check_end(uow, change)
        if change.machine == "attempt":
            self._attempt(uow, change)
        if change.to_state == "ACTIVE" and change.machine == "queuedResource":
            self._active(uow, change)
        return change.machine == "node" and self._node(uow, key, change)

    def _node(self, uow: UnitOfWork, key: str, change: StateChange) -> bool:
        """Return whether something is strange about a node that has changed, as it stands now."""
        found = watch.node(uow, key)
        if found is None:
            return False  # its record was deleted since
        state, usage_class, placed = found
        if change.event == "preempt" and usage_class not in CAN_BE_TAKEN_BACK:
            return True
        if state in HOLDING and not placed:
            return True
        if state in BILLABLE_NODE_STATES:
            return False
        gang = watch.attempts_on(uow, key)
        return not gang <= {AttemptState.ENDING} or (
            bool(gang) and state not in HOLDING and not placed
        )

    def _active(self, uow: UnitOfWork, change: StateChange) -> None:
        """I14 as it happens: by their lines so far, all nodes of it are READY."""
        for node in node_rows.of_queued_resource(uow, change.resource_key):
            last = self._last.get(node.node_key)
            if node.created <= change.at and (last is None or last.to_state != "READY"):
                state = "nothing" if last is None else last.to_state
                text = f"it became ACTIVE, and its node {node.node_id} was {state}"
                self._add([Violation("I14", change.at, change.resource_name, text)])

    def _attempt(self, uow: UnitOfWork, change: StateChange) -> None:
        """I3 as it happens: one attempt of a job at a time; and I8: it ends when its last process
        is gone."""
        job = change.resource_name.split("/")[0]
        is_open = self._attempts.get(job)
        if change.event == "create" and is_open is not None:
            text = f"another attempt of its job, {is_open}, has not ended"
            self._add([Violation("I3", change.at, change.resource_name, text)])
        if change.to_state != "ENDED":
            self._attempts[job] = change.resource_name
        elif is_open == change.resource_name:
            del self._attempts[job]
        if change.to_state == "ENDED":
            gang = [
                self._last[item.replica_id]
                for item in replicas.of_attempt(uow, change.resource_key)
            ]
            live = sum(last.to_state != "EXITED" for last in gang)
            if live:
                text = f"it ended, and {live} of its replicas had not"
                self._add([Violation("I8", change.at, change.resource_name, text)])

    def _check_end(self, uow: UnitOfWork, change: StateChange) -> bool:
        key = change.resource_key
        operation = operation_rows.find(uow, key)
        if operation is None:
            return False  # its record was deleted since
        if key in self._endings:
            text = f"it ended again, at version {change.version}"
            self._add([Violation("I7", change.at, operation.name, text)])
        self._endings[key] = _ending(operation)
        return bool(ended_wrongly(operation))

    def _check_unchanged(self, uow: UnitOfWork) -> None:
        for operation in operation_rows.list_all(uow):
            before = self._endings.get(operation.operation_id)
            if before is not None and before != _ending(operation):
                text = "what it ended with has changed since"
                self._add([Violation("I7", self._now, operation.name, text)])

    def _overlap(self, uow: UnitOfWork) -> bool:
        """Return whether a new slice has chips of another one, by what was last seen: one that was
        given back since only makes us look again."""
        clash = False
        for slice_id, pod_id, chips in watch.new_slices(uow, self._since):
            pod = self._chips.setdefault(pod_id, {})
            if slice_id not in pod and any(chips & other for other in pod.values()):
                clash = clash or self._reload(uow)
                pod = self._chips.setdefault(pod_id, {})
            pod[slice_id] = chips
        self._since = uow.now
        return clash

    def _reload(self, uow: UnitOfWork) -> bool:
        """Reads all slices again; whether two of one pod have a chip in common."""
        self._chips = {}
        clash = False
        taken: dict[str, int] = {}
        for item in slices.list_all(uow):
            self._chips.setdefault(item.pod_id, {})[item.slice_id] = item.chips
            clash = clash or bool(taken.get(item.pod_id, 0) & item.chips)
            taken[item.pod_id] = taken.get(item.pod_id, 0) | item.chips
        return clash

    def _zombies(self) -> None:
        """I8 on the machines: a process whose replica the platform counts as gone ends within its
        lease."""
        real = self._world.clock.monotonic_seconds()
        strange: dict[str, float] = {}
        for agent in self._world.agents:
            for replica_id in sorted(agent.processes):
                last = self._last.get(replica_id)
                if last is not None and last.to_state == "EXITED":
                    strange[replica_id] = self._strange_since.get(replica_id, real)
                    if real - strange[replica_id] > PROCESS_SECONDS_MAX and not agent.is_silent:
                        text = f"its process still runs on {agent.agent_id}"
                        self._add([Violation("I8", self._now, replica_id, text)])
        self._strange_since = strange


def _ending(operation: Operation) -> str:
    """A digest of what an operation says after its end."""
    error = [operation.error_code, operation.error_message, operation.error_details]
    ended = None if operation.ended is None else operation.ended.nanos
    said = [operation.state, *error, operation.response, ended]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
