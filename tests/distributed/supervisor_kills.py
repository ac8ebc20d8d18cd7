"""kill -9 for the supervisor on the default ports in the middle of a job, each followed by `podyard
up`.

    python -m tests.distributed.supervisor_kills [--kills 20] [--seed 1]

One job, digits-cnn on a v3-32. The moments are spread over its steps. After a third of the kills,
drawn from the seed, the next `up` is killed while it starts, so that processes are left that nobody
has recorded. After each kill
`podyard status` must know every process; after each `up` there must be one stack.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from podyard.settings import GRPC_PORT, HTTP_PORT
from tests.distributed.test_kills import assert_exact_bill
from tests.stack import Stack, open_stack, until

PORTS = (HTTP_PORT, GRPC_PORT)
ZONE, NODE = "europe-west4-a", "disturbed"
STEPS_PER_KILL, EVERY = 700, 100  # an idle machine does 500 steps in the time of a kill and an `up`
ONE_STACK = ["agent", "api", "broker", "loop", "supervisor"]
_SHARE_OF_STEPS = 0.8  # that may be done at the last kill
_SHARE_WHILE_STARTING = 1 / 3
_START_SECONDS = 2.0  # within which an `up` is killed: longer than it takes on an idle machine
_JOB_SECONDS_MAX = 1800.0


@dataclasses.dataclass(frozen=True)
class SupervisorKill:
    """`starting`: seconds after which the `up` that followed was killed, too; None if it was
    not."""

    step: int
    attempt: int
    starting: float | None
    up_seconds: float


@dataclasses.dataclass(frozen=True)
class SupervisorOutcome:
    path: str
    steps: int
    kills: Sequence[SupervisorKill]
    undisturbed_sha256: str


def run(stack: Stack, kills: int, seed: int) -> SupervisorOutcome:
    """An undisturbed job, then the same one with its supervisor killed `kills` times."""
    chance = random.Random(seed)
    steps = STEPS_PER_KILL * (kills + 1)
    fields = {"node": NODE, "steps": steps, "checkpointEverySteps": EVERY}
    stack.create_node(NODE, "v3-32", ZONE)
    calm = stack.submit("calm", ZONE, **fields)
    assert stack.wait_job(calm, _JOB_SECONDS_MAX)["state"] == "SUCCEEDED"
    path = stack.submit("disturbed", ZONE, **fields)
    done = []
    for number in range(kills):
        moment = (number + chance.random()) / kills
        starting = (
            chance.random() * _START_SECONDS if chance.random() < _SHARE_WHILE_STARTING else None
        )
        stack.wait_steps(path, max(1, round(moment * _SHARE_OF_STEPS * steps)), _JOB_SECONDS_MAX)
        done.append(_kill(stack, path, starting))
    stack.wait_job(path, _JOB_SECONDS_MAX)
    return SupervisorOutcome(path, steps, done, stack.params_sha256(calm))


def _kill(stack: Stack, path: str, starting: float | None) -> SupervisorKill:
    job = stack.call("GET", path)
    assert job["state"] == "RUNNING", f"STEPS_PER_KILL are too few for this machine: {job}"
    stack.kill("supervisor")
    if starting is not None:
        stack.kill_while_starting(starting)
    begin = time.monotonic()
    stack.up()
    assert sorted(name for name, _ in stack.main_processes()) == ONE_STACK
    assert stack.status_knows_all()
    return SupervisorKill(job["stepsDone"], job["attempt"], starting, time.monotonic() - begin)


def check(stack: Stack, outcome: SupervisorOutcome) -> None:
    """Everything that must be true in the end; deletes the node."""
    job = stack.call("GET", outcome.path)
    assert job["state"] == "SUCCEEDED", job
    assert [point["step"] for point in stack.metrics(outcome.path)] == list(
        range(1, outcome.steps + 1)
    )
    assert stack.params_sha256(outcome.path) == outcome.undisturbed_sha256
    until(lambda: True if not stack.replicas() else None, 10, "the replicas' end")
    stack.delete_node(NODE, ZONE)
    assert_exact_bill(stack)
    assert (
        sum(pod["chipsHeld"] for pod in stack.call("GET", "/podyard/v1/projects/demo/pods")["pods"])
        == 0
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="Number of kills.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed for the moments.")
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, open_stack(Path(folder), ports=PORTS) as stack:
        outcome = run(stack, given.kills, given.seed)
        for number, kill in enumerate(outcome.kills, 1):
            also = (
                ""
                if kill.starting is None
                else f", again {kill.starting:.2f} s into the next start"
            )
            when = f"at step {kill.step} of attempt {kill.attempt}{also}"
            print(f"kill {number:>3} {when}: up after {kill.up_seconds:.1f} s", flush=True)
        check(stack, outcome)
        attempts = stack.call("GET", outcome.path)["attempt"]
        killed = len(outcome.kills) + sum(kill.starting is not None for kill in outcome.kills)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{killed} supervisors killed on port {HTTP_PORT}; {outcome.steps} steps in {attempts} "
        "attempts, same bits "
        f"{outcome.undisturbed_sha256[:16]}, one stack, bill exact, fsck green; "
        f"{time.monotonic() - begin:.0f} s, "
        f"load average {load}"
    )


if __name__ == "__main__":
    main()
