"""kill -9 in the middle of a job, each process in turn: the job succeeds all the same, and nothing
is left or lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from podyard.cli.tools.demo import check_bill
from tests.stack import Stack, kill, open_stack, until

ZONE = "europe-west4-a"
STEPS = 240
EVERY = 20
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("kills")) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(stack: Stack) -> str:
    """The bits of a run that nobody disturbs."""
    stack.create_node("calm", "v3-32", ZONE)
    path = stack.submit("calm", ZONE, node="calm", steps=STEPS, checkpointEverySteps=EVERY)
    assert stack.wait_job(path)["state"] == "SUCCEEDED"
    stack.delete_node("calm", ZONE)
    return stack.params_sha256(path)


def _kill_replica(stack: Stack) -> None:
    kill(stack.replicas()[1].pid)


def _kill_agent(stack: Stack) -> None:
    stack.kill("agent")


def _kill_celery(stack: Stack) -> None:
    before = until(lambda: stack.celery() or None, 20, "a Celery worker")
    kill(before[0].pid)
    until(
        lambda: [p for p in stack.celery() if p.pid != before[0].pid] or None,
        20,
        "another Celery worker",
    )


def _kill_loop(stack: Stack) -> None:
    stack.kill("loop")


def _kill_api(stack: Stack) -> None:
    stack.kill("api")


def _kill_supervisor(stack: Stack) -> None:
    """Everything else goes on without it; the next `up`, on the same ports, takes over, and adopts
    the replicas. So
    does the one after it, when the first is killed, too. `make kills-supervisor` does this on the
    default ports."""
    before = {process.pid for process in stack.replicas()}
    assert before
    stack.kill("supervisor")
    status = stack.podyard("status")
    assert status.returncode == 1
    assert "podyard up" in status.stderr and "podyard down" in status.stderr
    stack.kill_while_starting(0.7)
    stack.up()
    assert stack.status_knows_all()
    assert sorted(name for name, _ in stack.main_processes()) == [
        "agent",
        "api",
        "broker",
        "loop",
        "supervisor",
    ]
    assert {process.pid for process in stack.replicas()} <= before


@pytest.mark.parametrize(
    "disturb",
    [
        _kill_replica,
        _kill_agent,
        _kill_celery,
        _kill_loop,
        _kill_api,
        pytest.param(_kill_supervisor, marks=pytest.mark.smoke),
    ],
    ids=lambda f: f.__name__.removeprefix("_kill_"),
)
def test_a_job_survives_the_kill_of(
    disturb: Callable[[Stack], None], stack: Stack, undisturbed: str
) -> None:
    name = disturb.__name__.removeprefix("_").replace("_", "-")
    stack.create_node(name, "v3-32", ZONE)
    path = stack.submit(name, ZONE, node=name, steps=STEPS, checkpointEverySteps=EVERY)
    stack.wait_steps(path, EVERY + 10)
    disturb(stack)
    job = stack.wait_job(path)
    assert job["state"] == "SUCCEEDED", job
    assert [point["step"] for point in stack.metrics(path)] == list(range(1, STEPS + 1))
    assert stack.params_sha256(path) == undisturbed
    stack.delete_node(name, ZONE)
    assert stack.replicas() == []
    assert_exact_bill(stack)
    assert (
        sum(pod["chipsHeld"] for pod in stack.call("GET", "/podyard/v1/projects/demo/pods")["pods"])
        == 0
    )


def assert_exact_bill(stack: Stack) -> None:
    usage = stack.call("GET", "/podyard/v1/projects/demo/usage")
    assert check_bill(usage, all_events(stack)) is None


def all_events(stack: Stack) -> list[dict[str, Any]]:
    return stack.pages("/podyard/v1/projects/demo/events", "events")
