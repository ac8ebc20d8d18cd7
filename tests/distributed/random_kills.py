"""A job whose processes are killed at random moments, again and again, and what must be true of it
in the end.

    python -m tests.distributed.random_kills [--kills 100] [--seed 1]

One job, digits-cnn on a v3-32, four replica processes, and SIGKILL for one of these, drawn from the
seed: a replica; two replicas at once; the agent alone, whose replicas the next agent adopts; the
agent, its replicas and its Celery worker, as when a machine goes. A moment is uniform in a window
after the steps were seen to go on after the kill before; for a quarter of the kills it is uniform
in the time that a recovery takes, so that it hits a job that is starting again. The seed fixes
kinds, victims and the place of each moment in its window. How long the windows are follows the
job's progress: the last kill comes after about three fifths of the steps on any machine, and a job
that is ahead of that is killed while it starts, or at once.

Bound of the lost work: the last step that an attempt reported is at most one checkpoint interval
after the step that the next one resumes from. A replica's reports carry steps and checkpoints in
the order in which they were made, so that of two due checkpoints at most the later one can be
missing, and the steps between them. What was computed and not yet reported (half a second between
reports) is lost in addition: nobody was ever told of it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.distributed.test_kills import assert_exact_bill
from tests.stack import Stack, open_stack, until

ZONE, NODE, ACCELERATOR = "europe-west4-a", "disturbed", "v3-32"
REPLICAS = 4
STEPS_PER_KILL, EVERY = 24, 20
STEPS_LEAST = 400  # with fewer the job may be over before the last of a few kills
ENVIRONMENT = {"PODYARD_AGENT_LEASE_SECONDS": "2", "PODYARD_REPLICA_LEASE_SECONDS": "2"}
KINDS = ("replica", "two replicas", "agent", "machine")
_SHARE_OF_STEPS = 0.6  # that are done at the last kill; what is reported is half a second old
_SHARE_EARLY = 0.25
_WINDOW_SECONDS_MAX = 4.0
_FIRST_RECOVERY_SECONDS = 4.0  # taken for typical until one was seen
# Far beyond what was ever seen: what waits this long hangs.
_RECOVERY_SECONDS_MAX, _END_SECONDS_MAX = 120.0, 600.0
_NO_LIMIT = 10**6


@dataclasses.dataclass(frozen=True)
class Planned:
    """One kill: `early` while the job starts again, `moment` in [0, 1) of its window, `order` of
    the victims."""

    kind: str
    early: bool
    moment: float
    order: Sequence[int]


@dataclasses.dataclass
class Kill:
    """One kill that was done. `starting`: steps had not gone on after the one before. `attempt`:
    the victims', None for the agent alone. `seconds` until steps went on, None if the next kill
    came before."""

    kind: str
    starting: bool
    attempt: int | None
    seen: tuple[int, int]  # attempt and step of the job just before
    at: float
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What the platform keeps of one attempt: steps are 0 where none was reported."""

    number: int
    resume_step: int
    last_step: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    path: str
    steps: int
    every: int
    kills: Sequence[Kill]
    attempts: Sequence[Attempt]
    undisturbed_sha256: str


def schedule(kills: int, seed: int) -> list[Planned]:
    chance = random.Random(seed)
    return [
        Planned(
            chance.choice(KINDS),
            chance.random() < _SHARE_EARLY,
            chance.random(),
            chance.sample(range(REPLICAS), REPLICAS),
        )
        for _ in range(kills)
    ]


def run(stack: Stack, kills: int, seed: int) -> Outcome:
    """An undisturbed job, then the same one disturbed by `kills` kills, to its end."""
    steps = max(STEPS_LEAST, STEPS_PER_KILL * kills)
    fields = {"node": NODE, "steps": steps, "checkpointEverySteps": EVERY}
    stack.create_node(NODE, ACCELERATOR, ZONE)
    calm = stack.submit("calm", ZONE, **fields)
    assert stack.wait_job(calm, _END_SECONDS_MAX)["state"] == "SUCCEEDED"
    step_seconds = statistics.median(point["wallSeconds"] for point in stack.metrics(calm))
    path = stack.submit(
        "disturbed", ZONE, **fields, maxFailures=_NO_LIMIT, maxPreemptions=_NO_LIMIT
    )
    done = _Disturber(stack, path, steps, step_seconds).run(schedule(kills, seed))
    stack.wait_job(path, _END_SECONDS_MAX)
    return Outcome(
        path, steps, EVERY, done, _attempts(stack, "disturbed"), stack.params_sha256(calm)
    )


def check(stack: Stack, outcome: Outcome) -> None:
    """Everything that must be true in the end; deletes the node."""
    job = stack.call("GET", outcome.path)
    assert job["state"] == "SUCCEEDED", job
    assert [point["step"] for point in stack.metrics(outcome.path)] == list(
        range(1, outcome.steps + 1)
    )
    assert stack.params_sha256(outcome.path) == outcome.undisturbed_sha256
    lost = lost_steps(outcome.attempts)
    assert max(lost.values(), default=0) <= outcome.every, lost
    until(lambda: True if not stack.replicas() else None, 10, "the replicas' end")
    stack.delete_node(NODE, ZONE)
    assert_exact_bill(stack)
    assert (
        sum(pod["chipsHeld"] for pod in stack.call("GET", "/podyard/v1/projects/demo/pods")["pods"])
        == 0
    )


def lost_steps(attempts: Sequence[Attempt]) -> dict[int, int]:
    """By the attempt's number, for each but the last: the steps that it reported and the next one
    had to do again."""
    pairs = itertools.pairwise(attempts)
    return {one.number: max(0, one.last_step - following.resume_step) for one, following in pairs}


def table(outcome: Outcome) -> str:
    lost = lost_steps(outcome.attempts)
    lines = [f"{'kill':>4}  {'kind':<12} {'hit':<8} {'at step':>7} {'steps after':>11} {'lost':>5}"]
    told: set[int] = set()
    for number, kill in enumerate(outcome.kills, 1):
        after = "next kill" if kill.seconds is None else f"{kill.seconds:.1f} s"
        first = kill.attempt is not None and kill.attempt not in told
        gone = lost.get(kill.attempt, 0) if kill.attempt is not None and first else 0
        told |= {kill.attempt} if kill.attempt is not None else set()
        hit = "starting" if kill.starting else "steps"
        lines.append(
            f"{number:>4}  {kill.kind:<12} {hit:<8} {kill.seen[1]:>7} {after:>11} {gone:>5}"
        )
    waits = [kill.seconds for kill in outcome.kills if kill.seconds is not None]
    lines.append(
        f"{len(outcome.attempts)} attempts, {sum(lost.values())} of {outcome.steps} steps done "
        "again, at most "
        f"{max(lost.values(), default=0)} of one attempt (checkpoints every {outcome.every}); "
        "steps went on after "
        f"{statistics.median(waits):.1f} s (median), {max(waits):.1f} s (longest)"
    )
    other = [one for one in outcome.attempts[:-1] if one.number not in told]
    lines += [f"attempt {one.number} ended by itself: {one.reason}" for one in other]
    return "\n".join(lines)


class _Disturber:
    def __init__(self, stack: Stack, path: str, steps: int, step_seconds: float) -> None:
        self.stack, self.path = stack, path
        self.steps, self.step_seconds = steps, step_seconds
        self.done: list[Kill] = []

    def run(self, plan: Sequence[Planned]) -> list[Kill]:
        self.stack.wait_steps(self.path, 1, _RECOVERY_SECONDS_MAX)
        for planned in plan:
            self.wait(planned, len(plan))
            self.kill(planned)
        self.watch(_RECOVERY_SECONDS_MAX)
        return self.done

    def wait(self, planned: Planned, count: int) -> None:
        """Until the moment of this kill, one of `count`."""
        left = _SHARE_OF_STEPS * self.steps - self.seen()[1]
        ahead = self.seen()[1] > _SHARE_OF_STEPS * self.steps * (len(self.done) + 1) / count
        if self.done and (planned.early or ahead):
            waits = [
                kill.seconds
                for kill in self.done
                if kill.seconds is not None and kill.attempt is not None
            ]
            typical = statistics.median(waits or [_FIRST_RECOVERY_SECONDS])
            self.watch(planned.moment * typical, hangs=False)
            return  # at once if steps go on: after the kill of an agent alone they never stopped
        if self.done:
            self.watch(_RECOVERY_SECONDS_MAX)
        mean = max(0.0, left) / (count - len(self.done)) * self.step_seconds
        time.sleep(planned.moment * min(_WINDOW_SECONDS_MAX, 2 * mean))

    def watch(self, seconds: float, hangs: bool = True) -> None:
        """Until steps go on after the last kill, or `seconds` have passed since that, which fails
        if it `hangs`."""
        kill = self.done[-1]
        while kill.seconds is None:
            since = time.monotonic() - kill.at
            if self.went_on(kill):
                kill.seconds = since
            elif since > seconds:
                assert not hangs, (
                    f"no step for {seconds} s after kill {len(self.done)}: {self.job()}"
                )
                return
            else:
                time.sleep(0.05)

    def went_on(self, kill: Kill) -> bool:
        attempt, step = self.seen()
        if (attempt, step) <= kill.seen or attempt <= (kill.attempt or 0):
            return False
        return bool(
            step > self.stack.call("GET", f"{self.path}:attempts")["attempts"][-1]["resumeStep"]
        )

    def seen(self) -> tuple[int, int]:
        job = self.job()
        return job["attempt"], job["stepsDone"]

    def job(self) -> Mapping[str, Any]:
        job = self.stack.call("GET", self.path)
        assert job["state"] not in ("SUCCEEDED", "FAILED", "CANCELLED"), (
            f"over after {len(self.done)} kills: {job}"
        )
        return job

    def kill(self, planned: Planned) -> None:
        victims = until(
            lambda: self.victims(planned),
            _RECOVERY_SECONDS_MAX,
            f"a process to kill ({planned.kind})",
        )
        attempts = [attempt for attempt in map(_attempt_of, victims) if attempt is not None]
        if self.done:
            self.watch(0, hangs=False)
        starting = bool(self.done) and self.done[-1].seconds is None
        kill = Kill(
            planned.kind, starting, max(attempts, default=None), self.seen(), time.monotonic()
        )
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        self.done.append(kill)

    def victims(self, planned: Planned) -> list[psutil.Process] | None:
        """The processes to kill, the agent first; None while they are not there. Fails when the job
        is over."""
        self.job()
        replicas = sorted(self.stack.replicas(), key=lambda process: process.pid)
        if planned.kind in ("replica", "two replicas"):
            wanted = 1 if planned.kind == "replica" else 2
            found = [replicas[index] for index in planned.order if index < len(replicas)][:wanted]
            return found if len(found) == wanted else None
        agents = self.stack.agents()
        if planned.kind == "agent":
            return agents or None
        return [*agents, *replicas, *self.stack.celery()] if agents and replicas else None


def _attempt_of(process: psutil.Process) -> int | None:
    """The number of the attempt that a replica belongs to."""
    try:
        text = process.environ().get("PODYARD_REPLICA_FENCE")
    except psutil.NoSuchProcess:
        return None
    return None if text is None else int(text)


def _attempts(stack: Stack, job: str) -> list[Attempt]:
    """From the database: no answer of the API has the steps that were lost."""
    query = (
        "SELECT a.attempt, a.resume_step, max(coalesce(m.step, 0)), a.reason FROM jobs j"
        " JOIN attempts a ON a.job_key = j.job_key"
        " LEFT JOIN job_metrics m ON m.job_key = j.job_key AND m.attempt = a.attempt"
        " WHERE j.job_id = ? GROUP BY a.attempt ORDER BY a.attempt"
    )
    with contextlib.closing(
        sqlite3.connect(f"file:{stack.data / 'podyard.db'}?mode=ro", uri=True)
    ) as database:
        return [Attempt(*row) for row in database.execute(query, (job,))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, open_stack(Path(folder), ENVIRONMENT) as stack:
        outcome = run(stack, given.kills, given.seed)
        print(table(outcome), flush=True)
        check(stack, outcome)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"all as it must be; {time.monotonic() - begin:.0f} s, load average {load}")


if __name__ == "__main__":
    main()
