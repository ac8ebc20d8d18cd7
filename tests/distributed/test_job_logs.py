"""Logs of users' programs and of recipes in real processes: stacks on demand, curves from JSON,
tracebacks first."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stack import PODYARD, Stack, open_stack, until

ZONE = "europe-west4-a"
HOSTS = 4
HANGS = """
import sys, threading, time
def wait_for_a_peer():
    time.sleep(600)
print('{"step": 10, "loss": 2.5}')
print('{"step": 20, "loss": 1.5, "eval": {"accuracy": 0.75}}', flush=True)
wait_for_a_peer()
"""
FAILS = """
import os, sys, time
print("warming up", flush=True)
if os.environ["SKYPILOT_NODE_RANK"] == "2":
    raise ValueError("a bad shard")
time.sleep(600)
"""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Iterator[Stack]:
    with open_stack(
        tmp_path_factory.mktemp("logs"), {"PODYARD_BOXES": boxes, "PODYARD_RUNTIMES": "off"}
    ) as found:
        found.create_node("slice", "v3-32", ZONE)
        yield found


def _submit(stack: Stack, job: str, program: str, **fields: Any) -> str:
    run = {"command": f"python3 - <<'END'\n{program}END"}
    return stack.submit(job, ZONE, **{"recipe": None, "node": "slice", "run": run, **fields})


def _job(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*PODYARD, "job", *arguments, "--data", str(stack.data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _lines(stack: Stack, path: str, text: str, count: int) -> list[dict[str, Any]]:
    def ask() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = stack.call("GET", f"{path}:logs?pageSize=5000")["lines"]
        return found if sum(text in line["line"] for line in found) >= count else None

    return until(ask, 30, f"{count} lines with {text!r}")


def test_a_hanging_program_says_where_and_what_it_prints_as_json_is_its_curve(stack: Stack) -> None:
    path = _submit(stack, "hangs", HANGS)
    _lines(stack, path, '"step": 20', HOSTS)
    points = until(lambda: stack.metrics(path)[1:] and stack.metrics(path), 10, "two points")
    assert [(point["step"], point["metrics"]) for point in points] == [
        (10, {"loss": 2.5}), (20, {"loss": 1.5, "eval/accuracy": 0.75})
    ]  # fmt: skip
    done = _job(stack, "stacks", "hangs", "--zone", ZONE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("in wait_for_a_peer") == HOSTS, done.stdout
    assert (
        "its stacks are on stderr" in done.stdout
        and "it is not a Python that Podyard can ask" in done.stdout
    )
    assert stack.call("GET", path)["state"] == "RUNNING"
    stack.call("POST", f"{path}:cancel", {})
    assert stack.wait_job(path)["state"] == "CANCELLED"


def test_the_traceback_of_the_worker_that_failed_stands_first(stack: Stack) -> None:
    path = _submit(stack, "fails", FAILS, maxFailures=0)
    job = stack.wait_job(path)
    assert job["state"] == "FAILED"
    failure = job["failure"]
    assert (failure["attempt"], failure["worker"]) == (1, 2)
    assert (
        failure["lines"][0].startswith("Traceback")
        and failure["lines"][-1] == "ValueError: a bad shard"
    )
    described = _job(stack, "describe", "fails", "--zone", ZONE).stdout
    assert described.index("a bad shard") < described.index("acceleratorType")
    found = _job(
        stack,
        "logs",
        "fails",
        "--zone",
        ZONE,
        "--worker",
        "2",
        "--grep",
        "BAD SHARD",
        "--stream",
        "stderr",
    )
    assert found.stdout.endswith("[1.2 stderr] ValueError: a bad shard\n")


def test_a_recipe_that_runs_says_what_its_threads_do(stack: Stack) -> None:
    path = stack.submit("recipe", ZONE, node="slice", steps=100_000, replicaProcesses=1)
    stack.wait_steps(path, 1)
    done = _job(stack, "stacks", "recipe", "--zone", ZONE)
    assert "[1.0 stacks]" in done.stdout and "podyard" in done.stdout, done.stdout + done.stderr
    stack.call("POST", f"{path}:cancel", {})
    stack.wait_job(path)
