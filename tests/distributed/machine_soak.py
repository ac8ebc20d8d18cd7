"""A whole yard that is disturbed for long: kills, cuts, pauses, a broker that forgets. What must be
true in the end?

    python -m tests.distributed.machine_soak [--faults 600] [--seed 1] [--minutes 28]

Two control planes on PostgreSQL and Redis, and three namespaces whose agents have joined over TLS,
run one training job after the other: four replicas of a v3-32, at most two on a machine. The seed
draws the faults, their victims and their times; which step of a job they hit depends on the
machine. A fault of `DISTURBING` may end an attempt, and every few of them the job has to come on
before the next.

In the end: every job has SUCCEEDED with each step once and the parameters of the job that nobody
disturbed; no chip is held, fsck is clean, the bill equals an independent recomputation, and no
process is left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from tests import postgresql
from tests.distributed.machines import YardMachine
from tests.distributed.test_kills import assert_exact_bill
from tests.distributed.whole_yard import WholeYard, open_whole_yard
from tests.stack import kill, until

ZONE, NODE, ACCELERATOR = "europe-west4-a", "soaked", "v3-32"
PLACES = (2, 2, 2)
STEPS, EVERY = 60, 10
# Kind -> how often, of 100.
SHARES = {
    "replica": 16, "two replicas": 6, "agent": 10, "machine": 6, "cut": 12, "pause of a replica": 8,
    "pause of an agent": 6, "api": 10, "loop": 10, "broker": 6, "flush": 10,
}  # fmt: skip
DISTURBING = frozenset(
    {"replica", "two replicas", "machine", "cut", "pause of a replica", "pause of an agent"}
)
DISTURBING_IN_A_ROW_MAX = 3  # then the job has to come on: else none would ever end
# beyond the leases, so that who comes back finds itself replaced
PAUSE_SECONDS_MAX, CUT_SECONDS_MAX = 6.0, 6.0
GAP_SECONDS_MAX = 1.5
RECOVERY_SECONDS_MAX, END_SECONDS_MAX = 120.0, 300.0
_NO_LIMIT = 10**6


@dataclasses.dataclass(frozen=True)
class Fault:
    """`length`, `gap` and `victim` are in [0, 1): of the longest pause or cut, of the longest time
    before, of all victims."""

    kind: str
    victim: float
    length: float
    gap: float


@dataclasses.dataclass
class Report:
    """`done`: faults by kind; `skipped`: those that found no victim. `recoveries`: seconds until
    steps went on."""

    seed: int
    done: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    skipped: int = 0
    jobs: int = 0
    attempts: int = 0
    recoveries: list[float] = dataclasses.field(default_factory=list)
    left_seconds: float = 0.0

    def text(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        slowest = max(self.recoveries, default=0.0)
        return (
            f"seed {self.seed}: {self.done.total()} faults ({kinds}); {self.skipped} "
            "found no victim\n"
            f"{self.jobs} jobs with {self.attempts} attempts; steps went on after {slowest:.1f} s "
            "at the latest\n"
            f"the last process was gone {self.left_seconds:.1f} s after the end"
        )


def schedule(faults: int, seed: int) -> list[Fault]:
    chance = random.Random(seed)
    kinds = chance.choices(list(SHARES), list(SHARES.values()), k=faults)
    return [Fault(kind, chance.random(), chance.random(), chance.random()) for kind in kinds]


class Soak:
    def __init__(self, whole: WholeYard, seed: int) -> None:
        self.whole = whole
        self.yard, self.stack = whole.yard, whole.first
        self.report = Report(seed)
        self.paths: list[str] = []
        self._paused: list[tuple[float, Callable[[], None]]] = []
        self._in_a_row = 0
        self._faults: Mapping[str, Callable[[Fault], bool]] = {
            "replica": lambda fault: self._kill(self._replicas(), fault, 1),
            "two replicas": lambda fault: self._kill(self._replicas(), fault, 2),
            "agent": lambda fault: self._kill(self._agents(), fault, 1),
            "machine": self._power,
            "cut": self._cut,
            "pause of a replica": lambda fault: self._pause(self._replicas(), fault),
            "pause of an agent": lambda fault: self._pause(self._agents(), fault),
            "api": lambda fault: self._kill_of_plane("api", fault),
            "loop": lambda fault: self._kill_of_plane("loop", fault),
            "broker": lambda _: self._restart_broker(),
            "flush": lambda _: whole.broker.flush(),
        }

    def run(self, faults: Sequence[Fault], seconds_max: float) -> Report:
        """Does the faults, or as many of them as there is time for, and checks everything."""
        self.stack.create_node(NODE, ACCELERATOR, ZONE)
        calm = self._submit("calm")
        assert self.stack.wait_job(calm, END_SECONDS_MAX)["state"] == "SUCCEEDED"
        self._next_job()
        ends = time.monotonic() + seconds_max
        for fault in faults:
            if time.monotonic() > ends:
                break
            time.sleep(fault.gap * GAP_SECONDS_MAX)
            self._resume_what_is_due()
            self._follow_job()
            self._do(fault)
        self._resume_what_is_due(everything=True)
        assert self.stack.wait_job(self.paths[-1], END_SECONDS_MAX)["state"] == "SUCCEEDED"
        self._check(calm)
        return self.report

    def _do(self, fault: Fault) -> None:
        if fault.kind in DISTURBING and self._in_a_row >= DISTURBING_IN_A_ROW_MAX:
            self._resume_what_is_due(everything=True)
            self._wait_for_steps()
        if not self._faults[fault.kind](fault):
            self.report.skipped += 1
            return
        self.report.done[fault.kind] += 1
        self._in_a_row += fault.kind in DISTURBING

    def _next_job(self) -> None:
        self.report.jobs += 1
        self.paths.append(self._submit(f"job-{self.report.jobs}"))
        self._in_a_row = 0

    def _submit(self, name: str) -> str:
        fields = {"node": NODE, "steps": STEPS, "checkpointEverySteps": EVERY}
        return self.stack.submit(
            name, ZONE, **fields, maxFailures=_NO_LIMIT, maxPreemptions=_NO_LIMIT
        )

    def _follow_job(self) -> None:
        job = self.stack.call("GET", self.paths[-1])
        assert job["state"] not in ("FAILED", "CANCELLED"), job
        if job["state"] == "SUCCEEDED":
            self._next_job()

    def _wait_for_steps(self) -> None:
        """Until the job has done steps that it had not done."""
        began, before = time.monotonic(), self.stack.call("GET", self.paths[-1])["stepsDone"]

        def went_on() -> bool | None:
            job = self.stack.call("GET", self.paths[-1])
            assert job["state"] not in ("FAILED", "CANCELLED"), job
            return True if job["stepsDone"] > before or job["state"] == "SUCCEEDED" else None

        until(went_on, RECOVERY_SECONDS_MAX, f"a step after {before} of {self.paths[-1]}")
        self.report.recoveries.append(time.monotonic() - began)
        self._in_a_row = 0

    def _replicas(self) -> list[psutil.Process]:
        return self._of_machines("podyard.workers.replica.replica")

    def _agents(self) -> list[psutil.Process]:
        return self._of_machines("podyard.main", "agent")

    def _of_machines(self, *words: str) -> list[psutil.Process]:
        found = []
        for pid in sorted(pid for machine in self.yard.machines for pid in machine.pids()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if (
                    all(word in process.cmdline() for word in words)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found

    def _kill(self, found: Sequence[psutil.Process], fault: Fault, count: int) -> bool:
        if len(found) < count:
            return False
        first = int(fault.victim * len(found))
        for place in range(count):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[(first + place) % len(found)].kill()
        return True

    def _power(self, fault: Fault) -> bool:
        machine = self._machine(fault)
        machine.kill()
        machine.start()
        return True

    def _cut(self, fault: Fault) -> bool:
        machine = self._machine(fault)
        machine.cut()
        self._paused.append((time.monotonic() + fault.length * CUT_SECONDS_MAX, machine.heal))
        return True

    def _pause(self, found: Sequence[psutil.Process], fault: Fault) -> bool:
        if not found:
            return False
        victim = found[int(fault.victim * len(found))]

        def go_on() -> None:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGCONT)

        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGSTOP)
        self._paused.append((time.monotonic() + fault.length * PAUSE_SECONDS_MAX, go_on))
        return True

    def _kill_of_plane(self, name: str, fault: Fault) -> bool:
        plane = self.whole.first if fault.victim < 0.5 else self.whole.second
        try:
            kill(plane.pid(name))
        except (ProcessLookupError, KeyError):
            return False  # it is being started again
        return True

    def _restart_broker(self) -> bool:
        self.whole.broker.restart()
        return True

    def _machine(self, fault: Fault) -> YardMachine:
        return self.yard.machines[int(fault.victim * len(self.yard.machines))]

    def _resume_what_is_due(self, *, everything: bool = False) -> None:
        now = time.monotonic()
        due = [go_on for at, go_on in self._paused if everything or at <= now]
        self._paused = [(at, go_on) for at, go_on in self._paused if not everything and at > now]
        for go_on in due:
            go_on()

    def _check(self, calm: str) -> None:
        bits = self.stack.params_sha256(calm)
        for path in self.paths:
            job = self.stack.call("GET", path)
            assert job["state"] == "SUCCEEDED", job
            assert [point["step"] for point in self.stack.metrics(path)] == list(
                range(1, STEPS + 1)
            ), path
            assert self.stack.params_sha256(path) == bits, path
            self.report.attempts += job["attempt"]
        until(lambda: True if not self._replicas() else None, 20, "the replicas' end")
        self.stack.delete_node(NODE, ZONE)
        assert_exact_bill(self.stack)
        assert (
            sum(
                pod["chipsHeld"]
                for pod in self.stack.call("GET", "/podyard/v1/projects/demo/pods")["pods"]
            )
            == 0
        )
        began = time.monotonic()
        for machine in self.yard.machines:
            machine.stop()
        left = {pid for machine in self.yard.machines for pid in machine.pids()}
        self.report.left_seconds = time.monotonic() - began
        assert not left and self.report.left_seconds < 20, (left, self.report.left_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=28.0)
    given = parser.parse_args()
    programs = postgresql.binaries()
    assert programs is not None, "PostgreSQL is missing"
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgresql.serve(programs) as server,
        open_whole_yard(Path(folder), server, PLACES) as whole,
    ):
        found = Soak(whole, given.seed).run(schedule(given.faults, given.seed), given.minutes * 60)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{found.text()}\nall as it must be; {time.monotonic() - began:.0f} s, load average {load}"
    )


if __name__ == "__main__":
    main()
