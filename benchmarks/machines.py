"""How soon machines and a restarted control plane are of use.

    python -m benchmarks.machines [--rounds 5] [--nodes 1000]

A yard with PostgreSQL, Redis, two APIs and two loops, and machines in network namespaces that join
over TLS (root, Linux). A machine joins, the only one, and a job is submitted as soon as it is
accepted: until the process of its replica is there, from the start of `podyard agent join`. Then
jobs are submitted while that machine is idle: until the process of the replica is there, and until
its first step is reported. Redis is killed, and a job submitted, which begins without it, since
agents ask by themselves: what waits are messages. Redis is started: until all of them are sent.
Another stack with many nodes, on SQLite: API and loop are killed together, until the list of nodes
is answered and `/readyz` is green. Median and worst, in seconds.
Bounds: join 5 s, replica 1 s, Redis 5 s, restart 2 s.
Expected before the first run: join 3 s (two interpreters, Celery), replica 0.5 s, Redis 2 s,
restart 1.5 s.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx

from podyard.stack.supervisor import STEADY_SECONDS
from tests import postgresql
from tests.distributed.whole_yard import WholeYard, open_whole_yard
from tests.stack import Stack, kill, open_stack
from tests.waiting import until

ZONE = "us-central2-b"
KIND = "v4-8"
NODE_ZONE = "us-central1-b"
POLL_SECONDS = 0.01
SECONDS_MAX = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=1_000)
    given = parser.parse_args()
    programs = postgresql.binaries()
    assert programs is not None, "PostgreSQL is not installed"
    with (
        tempfile.TemporaryDirectory(prefix="podyard-machines-") as folder,
        postgresql.serve(programs) as server,
        open_whole_yard(Path(folder), server, []) as yard,
    ):
        yard.first.create_node("n", "v2-8", NODE_ZONE)
        _show("from `agent join` to its first replica", list(_joins(yard, given.rounds)), 5.0)
        started, stepped = zip(*_submissions(yard, given.rounds), strict=True)
        _show("from a submission to its replica, warm, on that machine", started, 1.0)
        _show("from a submission to its first step", stepped)
        _show(
            "from the return of Redis until all messages are sent",
            list(_returns_of_redis(yard, given.rounds)),
            5.0,
        )
    with (
        tempfile.TemporaryDirectory(prefix="podyard-restart-") as folder,
        open_stack(Path(folder)) as stack,
    ):
        _create(stack, given.nodes)
        answered, ready = zip(*_restarts(stack, given.rounds), strict=True)
        _show(f"{given.nodes:,} nodes, API and loop killed: the list of nodes", answered, 2.0)
        _show("    `/readyz`", ready, 2.0)


def _show(what: str, seconds: Sequence[float], most: float | None = None) -> None:
    bound = "" if most is None else f"  (at most {most:g})"
    late = "  LATE" if most is not None and max(seconds) > most else ""
    print(
        f"{what:<58}{statistics.median(seconds):>6.2f}{max(seconds):>6.2f}{bound}{late}", flush=True
    )


def _seconds_until(what: Callable[[], object], began: float) -> float:
    while not what():
        assert time.monotonic() - began < SECONDS_MAX, "it does not come"
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def _joins(yard: WholeYard, rounds: int) -> Iterator[float]:
    """Each time another machine, and the only one. The last one stays."""
    for number in range(rounds):
        for machine in yard.yard.machines:
            machine.stop()
        machine = yard.yard.add()
        arguments = [*yard.first.join_arguments(), "--name", machine.name, "--replicas-max", "2"]
        began = time.monotonic()
        machine.start(*arguments)
        path = _submit_once_there_is_room(yard, f"joins-{number}", began)
        yield _seconds_until(machine.replicas, began)
        assert yard.first.wait_job(path)["state"] == "SUCCEEDED"


def _submit_once_there_is_room(yard: WholeYard, name: str, began: float) -> str:
    path = f"/podyard/v1/projects/demo/locations/{NODE_ZONE}/jobs"
    body = {"recipe": "digits-cnn", "steps": 5, "node": "n"}
    _seconds_until(
        lambda: yard.first.http.post(f"{path}?jobId={name}", json=body).status_code == 200, began
    )
    return f"{path}/{name}"


def _submissions(yard: WholeYard, rounds: int) -> Iterator[tuple[float, float]]:
    machine = yard.yard.machines[-1]
    for number in range(rounds):
        _seconds_until(lambda: not machine.replicas(), time.monotonic())
        began = time.monotonic()
        path = yard.first.submit(f"warm-{number}", NODE_ZONE, node="n", steps=5)
        started = _seconds_until(machine.replicas, began)
        stepped = _seconds_until(lambda path=path: yard.first.call("GET", path)["stepsDone"], began)  # type: ignore[misc]
        assert yard.first.wait_job(path)["state"] == "SUCCEEDED"
        yield started, stepped


def _returns_of_redis(yard: WholeYard, rounds: int) -> Iterator[float]:
    for number in range(rounds):
        yard.broker.stop()
        path = yard.first.submit(f"redis-{number}", NODE_ZONE, node="n", steps=5)
        _seconds_until(yard.unsent, time.monotonic())
        began = time.monotonic()
        yard.broker.restart()
        yield _seconds_until(lambda: not yard.unsent(), began)
        assert yard.first.wait_job(path)["state"] == "SUCCEEDED"


def _create(stack: Stack, count: int) -> None:
    body = {"acceleratorType": KIND, "runtimeVersion": "tpu-ubuntu2204-base"}
    path = f"/v2/projects/demo/locations/{ZONE}/nodes"
    for number in range(count):
        stack.call("POST", f"{path}?nodeId=n-{number}", body)
    until(lambda: _ready(stack) >= count or None, 300, "all nodes")


def _ready(stack: Stack) -> int:
    nodes = stack.pages(f"/v2/projects/demo/locations/{ZONE}/nodes", "nodes")
    return sum(node["state"] == "READY" for node in nodes)


def _restarts(stack: Stack, rounds: int) -> Iterator[tuple[float, float]]:
    path = f"/v2/projects/demo/locations/{ZONE}/nodes"

    def answers(path: str) -> bool:
        try:
            return stack.http.get(path).status_code == 200
        except httpx.TransportError:
            return False

    for _ in range(rounds):
        time.sleep(STEADY_SECONDS + 1)  # what ends more often is started again later
        pids = [stack.pid(name) for name in ("api", "loop")]
        began = time.monotonic()
        for pid in pids:
            kill(pid)
        answered = _seconds_until(lambda: answers(path), began)
        yield answered, _seconds_until(lambda: answers("/readyz"), began)


if __name__ == "__main__":
    main()
