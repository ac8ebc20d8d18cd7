"""From start to the first good answer, compared with moto_server, in one run; and what the idle
stack takes: its memory and its share of a core.

    python -m benchmarks.startup [--rounds 5]

Podyard: `podyard up` on an existing data folder until the first authorised `nodes.list`, and until
`/readyz` is green. moto_server: until the first answer of an emulated service, which is when it is
of use: EC2 DescribeInstances (the list of machines, as nodes.list is) and, the lightest there is,
SQS ListQueues.
Expected before the first run: 0.7 to 1.0 times (an interpreter, FastAPI and SQLAlchemy against
Flask and botocore). Measured: 0.5 against the list of machines, 1.7 against the list of queues,
which loads a fraction of moto. What is left is the import of FastAPI (0.22 s) and SQLAlchemy (0.12
s); the stack's other processes start after the API answers.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

RSS_GOAL_MEGABYTES = 250
IDLE_GOAL_PERCENT = 1.0
IDLE_SECONDS = 20.0
ANSWER_SECONDS_MAX = 60.0
PODYARD = [sys.executable, "-c", "from podyard.main import cli; cli()"]
MOTO = [sys.executable, "-c", "import sys; from moto.server import main; sys.exit(main())"]
SERVICES = {
    "ec2": "Action=DescribeInstances&Version=2016-11-15",
    "sqs": "Action=ListQueues&Version=2012-11-05",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        podyard(data)  # makes the data folder
        ours, ready = [], []
        theirs: dict[str, list[float]] = {service: [] for service in SERVICES}
        for _ in range(rounds):
            first, green = podyard(data)[:2]
            ours.append(first)
            ready.append(green)
            for service in SERVICES:
                theirs[service].append(moto(service))
        idle = podyard(data, IDLE_SECONDS)[2]
    rows = [("podyard nodes.list", ours), ("podyard /readyz", ready)]
    rows += [(f"moto_server {service}", values) for service, values in theirs.items()]
    for name, values in rows:
        print(
            f"{name:<20} median {statistics.median(values):.3f} s  min {min(values):.3f}  max "
            f"{max(values):.3f}"
        )
    for service, values in theirs.items():
        ratios = [a / b for a, b in zip(ours, values, strict=True)]
        spread = f"min {min(ratios):.2f}  max {max(ratios):.2f}"
        print(f"nodes.list / moto {service}: median {statistics.median(ratios):.2f}  {spread}")
    print(f"idle stack RSS {idle.megabytes:.0f} MB (goal {RSS_GOAL_MEGABYTES})")
    print(f"idle stack {idle.percent:.2f} % of a core (goal {IDLE_GOAL_PERCENT:g})")


@dataclasses.dataclass(frozen=True)
class _Idle:
    megabytes: float
    percent: float


def podyard(data: Path, idle_seconds: float = 0.0) -> tuple[float, float, _Idle]:
    """(seconds to the first nodes.list, seconds to a green /readyz, what all processes take when
    they are idle)."""
    port = _free_port()
    start = time.perf_counter()
    process = subprocess.Popen(
        [*PODYARD, "up", "--data", str(data), "--port", str(port), "--fleet", "instant"],
        stdout=subprocess.DEVNULL,
    )
    try:
        listed = _until(lambda: _nodes_list(port, data)) - start
        green = _until(lambda: _status(port, "GET", "/readyz", {}, "") == 200) - start
        return listed, green, _idle(process.pid, idle_seconds)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def moto(service: str) -> float:
    port = _free_port()
    start = time.perf_counter()
    process = subprocess.Popen(
        [*MOTO, "-p", str(port), "-H", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    scope = f"Credential=a/20200101/us-east-1/{service}/aws4_request"
    authorization = f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=x"
    headers = {"Authorization": authorization, "Content-Type": "application/x-www-form-urlencoded"}
    body = SERVICES[service]
    try:
        return _until(lambda: _status(port, "POST", "/", headers, body) == 200) - start
    finally:
        process.kill()
        process.wait()


def _nodes_list(port: int, data: Path) -> bool:
    path = data / "token"
    if not path.exists():
        return False
    headers = {"Authorization": f"Bearer {path.read_text().strip()}"}
    return (
        _status(port, "GET", "/v2/projects/demo/locations/us-central1-f/nodes", headers, "") == 200
    )


def _status(port: int, method: str, path: str, headers: dict[str, str], body: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request(method, path, body or None, headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def _until(good: Callable[[], bool]) -> float:
    deadline = time.perf_counter() + ANSWER_SECONDS_MAX
    while not good():
        if time.perf_counter() > deadline:
            raise SystemExit("no good answer in time")
        time.sleep(0.005)
    return time.perf_counter()


def _idle(pid: int, seconds: float) -> _Idle:
    """All processes of the stack once its Celery worker is up. Memory that they share counts for
    each. Nothing is measured in no time."""
    if not seconds:
        return _Idle(0.0, 0.0)
    time.sleep(4)
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    sizes = {f"{p.pid} {' '.join(p.cmdline()[1:4])}": p.memory_info().rss / 1e6 for p in processes}
    if os.environ.get("PODYARD_BENCHMARK_VERBOSE"):
        print(json.dumps(sizes, indent=1))
    before = sum(sum(p.cpu_times()[:2]) for p in processes)
    time.sleep(seconds)
    used = sum(sum(p.cpu_times()[:2]) for p in processes) - before
    return _Idle(sum(sizes.values()), 100 * used / seconds)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


if __name__ == "__main__":
    main()
