"""Decisions of an agent: events in, instructions out, no I/O.

    wanted  what the server lists, by replica
    known   what this machine has, by replica

A replica that is listed and unknown is started (or, if it has to stop, reported as exited: it never
ran). One that is known and no longer listed, or listed with another fence, is stopped, and
forgotten once it has exited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum

from podyard.settings import Leases

SHUTDOWN_REASON = "the agent is shutting down"
EXIT_LOST_CONTACT = 75  # of a replica whose lease lapsed: EX_TEMPFAIL of sysexits.h


class ReplicaPhase(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    EXITED = "EXITED"


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """One replica as the server lists it."""

    replica: str
    fence: int
    run: bool
    token: str


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """One replica as this machine has it. `exit_code` and `reason` once it has exited.

    `released`: it ended because of the platform, not because of the job: the attempt counts as
    preempted.
    """

    replica: str
    fence: int
    phase: ReplicaPhase
    pid: int | None = None
    exit_code: int | None = None
    reason: str = ""
    released: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    replica: str
    fence: int
    token: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    replica: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Forget:
    replica: str


Instruction = Start | Stop | Forget


class KnownReplicas:
    """Holds what is known; every method is one event and returns what follows from it.

    `lease_seconds`: how long replicas go on without an answer of the API.
    """

    def __init__(self, lease_seconds: float = Leases().replica_seconds) -> None:
        self._lost_contact = f"lost contact with the API for {lease_seconds:g} s"
        self._known: dict[str, Known] = {}
        self._listed: set[str] = set()

    def reports(self) -> list[Known]:
        """Return what the next sync says: everything that is known."""
        return [self._known[name] for name in sorted(self._known)]

    def on_synced(self, wanted: Sequence[Wanted], reported: Sequence[Known]) -> list[Instruction]:
        """The server's answer to a sync that said `reported`."""
        listed = {item.replica: item for item in wanted}
        self._listed = set(listed)
        instructions: list[Instruction] = []
        exited = {item.replica for item in reported if item.phase is ReplicaPhase.EXITED}
        for name, item in sorted(self._known.items()):
            there = listed.get(name)
            if item.phase is ReplicaPhase.EXITED:
                if there is None and name in exited:
                    del self._known[name]
                    instructions.append(Forget(name))
            elif there is None or there.fence != item.fence:
                instructions += self._stop(item, "the server no longer lists it")
            elif not there.run:
                instructions += self._stop(item, "the server wants it to stop")
        for name, there in sorted(listed.items()):
            if name in self._known:
                continue
            if there.run:
                self._known[name] = Known(name, there.fence, ReplicaPhase.STARTING)
                instructions.append(Start(name, there.fence, there.token))
            else:
                text = "stopped before it was started"
                self._known[name] = Known(
                    name, there.fence, ReplicaPhase.EXITED, exit_code=0, reason=text
                )
        return instructions

    def on_started(self, replica: str, pid: int) -> list[Instruction]:
        self._known[replica] = dataclasses.replace(
            self._known[replica], phase=ReplicaPhase.RUNNING, pid=pid
        )
        return []

    def on_start_failed(self, replica: str, reason: str) -> list[Instruction]:
        item = self._known[replica]
        self._known[replica] = dataclasses.replace(
            item, phase=ReplicaPhase.EXITED, exit_code=None, reason=reason
        )
        return []

    def on_adopted(self, replica: str, fence: int, pid: int) -> list[Instruction]:
        """A process that an earlier agent of this folder started, and that still runs."""
        self._known[replica] = Known(replica, fence, ReplicaPhase.RUNNING, pid)
        return []

    def on_found_dead(self, replica: str, fence: int) -> list[Instruction]:
        """A record of an earlier agent whose process is gone."""
        text = "the process ended while its agent was down"
        self._known[replica] = Known(
            replica, fence, ReplicaPhase.EXITED, reason=text, released=True
        )
        return []

    def on_exited(self, replica: str, exit_code: int | None) -> list[Instruction]:
        """The whole process group is gone."""
        item = self._known[replica]
        if item.phase is not ReplicaPhase.EXITED:
            changed = dataclasses.replace(item, phase=ReplicaPhase.EXITED, exit_code=exit_code)
            if exit_code == EXIT_LOST_CONTACT:
                changed = dataclasses.replace(changed, reason=self._lost_contact, released=True)
            elif item.phase is not ReplicaPhase.STOPPING:
                changed = dataclasses.replace(changed, reason=_exit_text(exit_code))
            self._known[replica] = changed
        return []

    def on_shutdown(self) -> list[Instruction]:
        """The agent is asked to end: every replica stops."""
        return [
            instruction
            for _name, item in sorted(self._known.items())
            if item.phase is not ReplicaPhase.EXITED
            for instruction in self._stop(item, SHUTDOWN_REASON)
        ]

    def _stop(self, item: Known, reason: str) -> list[Instruction]:
        if item.phase is ReplicaPhase.STOPPING:
            return []
        released = reason == SHUTDOWN_REASON
        self._known[item.replica] = dataclasses.replace(
            item, phase=ReplicaPhase.STOPPING, reason=reason, released=released
        )
        return [Stop(item.replica, reason)]


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None:
        return "the process ended; its exit code is not known"
    if exit_code < 0:
        return f"the process was killed by signal {-exit_code}"
    return f"the process ended with exit code {exit_code}"
