"""A machine is lost: an elastic job goes on with fewer hosts, and grows back when the machine is
there again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.stack import Stack, kill, open_stack, until

ZONE = "europe-west4-a"
# Enough that a fast machine has not done them before the gang can grow (10 s after it began).
STEPS, EVERY = 2000, 50
LEASES = {"PODYARD_AGENT_LEASE_SECONDS": "2", "PODYARD_REPLICA_LEASE_SECONDS": "2"}
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(
        tmp_path_factory.mktemp("elastic"), {**LEASES, "PODYARD_REPLICAS_MAX": "2"}
    ) as found:
        found.create_node("slice", "v3-32", ZONE)
        yield found


@pytest.fixture
def machine(stack: Stack) -> Iterator[Machine]:
    found = Machine(stack)
    found.start()
    until(
        lambda: True if len(stack.call("GET", "/podyard/v1/agents")["agents"]) == 2 else None,
        30,
        "two agents",
    )
    yield found
    found.leave()


class Machine:
    """A second one with room for two replicas."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._agent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._agent = self._stack.start_agent("second", 2)

    def kill(self) -> None:
        """The agent and its replicas at once."""
        assert self._agent is not None
        mine = psutil.Process(self._agent.pid).children(recursive=True)
        self._agent.kill()
        for process in mine:
            kill(process.pid)
        self._agent.wait()

    def leave(self) -> None:
        assert self._agent is not None
        self._agent.terminate()
        self._agent.wait(20)


def attempts(stack: Stack, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.call("GET", f"{path}:attempts")["attempts"]
    return found


def test_a_job_goes_on_with_fewer_hosts_and_grows_back(stack: Stack, machine: Machine) -> None:
    # Dropout is drawn by cores, of which a smaller gang has fewer.
    fields = {"node": "slice", "arguments": {"dropout": 0}}
    elastic = {"checkpointEverySteps": EVERY, "elastic": {"minReplicas": 2}}
    path = stack.submit("elastic", ZONE, steps=STEPS, **elastic, **fields)
    stack.wait_steps(path, 2 * EVERY + 5)
    machine.kill()

    def smaller() -> bool | None:
        return True if attempts(stack, path)[-1]["hosts"] == 2 else None

    until(smaller, 30, "a gang on two hosts")
    lost = attempts(stack, path)
    assert (lost[0]["hosts"], lost[0]["outcome"], lost[1]["globalBatch"]) == (
        4,
        "PREEMPTED",
        lost[0]["globalBatch"],
    )
    stack.wait_steps(path, lost[1]["resumeStep"] + EVERY)
    assert "2 of 4 hosts" in stack.call("GET", path)["stateReason"]
    machine.start()
    until(lambda: True if len(attempts(stack, path)) > 2 else None, 60, "a gang that has grown")
    job = stack.wait_job(path)
    counts = (job["state"], job["failures"], job["preemptions"], job["stepsDone"])
    assert counts == ("SUCCEEDED", 0, 1, STEPS), job
    first, second, third = attempts(stack, path)
    assert (second["outcome"], third["hosts"], third["outcome"]) == ("RESIZED", 4, "SUCCEEDED")
    assert first["attempt"] == 1 and second["resumeStep"] % EVERY == 0
    points = stack.metrics(path)
    assert [point["step"] for point in points] == list(range(1, STEPS + 1))
    # Not a step is computed twice because of growing: the third goes on after the last step of the
    # second.
    assert [p["attempt"] for p in points] == [
        *([1] * second["resumeStep"]),
        *([2] * (third["resumeStep"] - second["resumeStep"])),
        *([3] * (STEPS - third["resumeStep"])),
    ]
    yielded = [line for line in stack.log_lines(path) if line.startswith("yielded after step")]
    assert yielded == [f"yielded after step {third['resumeStep']}"] * 2
    assert job["metrics"]["latest"]["testAccuracy"] >= 0.97
    # The same batches: while nothing but rounding differs, the losses are those of an undisturbed
    # run.
    calm = stack.submit("calm", ZONE, steps=second["resumeStep"] + 20, **fields)
    assert stack.wait_job(calm)["state"] == "SUCCEEDED"
    for one, other in zip(stack.metrics(calm), points, strict=False):
        assert one["loss"] == pytest.approx(other["loss"], rel=0.05, abs=0.01), one["step"]


def test_a_job_that_is_not_elastic_waits_for_its_full_gang(stack: Stack, machine: Machine) -> None:
    path = stack.submit("whole", ZONE, steps=400, checkpointEverySteps=EVERY, node="slice")
    stack.wait_steps(path, EVERY + 5)
    machine.kill()
    until(
        lambda: stack.call("GET", path)["state"] == "RECOVERING" or None, 30, "the loss to be seen"
    )
    reason = "4 replicas are needed at once and the live agents have room for 2"
    until(lambda: stack.call("GET", path)["stateReason"] == reason or None, 30, "the reason")
    machine.start()
    assert stack.wait_job(path)["state"] == "SUCCEEDED"
    first, *others, last = attempts(stack, path)
    assert {one["hosts"] for one in (first, *others, last)} == {4}
    # Two attempts, but for those that a busy machine costs: an agent falls silent, or loses
    # contact.
    assert all("silent" in one["reason"] or "lost contact" in one["reason"] for one in others), (
        others
    )
