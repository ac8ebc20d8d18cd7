"""What a flood of log lines costs: a job on four hosts, each of which writes 5,000 lines a second
for ten seconds.

    python -m benchmarks.job_logs [--lines 5000] [--seconds 10]

Prints how many lines a follower got, how long after it was printed each became visible, and what
another client waits for a small GET meanwhile, against the same while nothing is written. A whole
Podyard runs, and everything shares the machine's CPUs. Bounds: none lost, 1 s, 3 times.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from podyard.base.files import read_json

WORKERS = 4
ZONE = "us-central1-a"
PODYARD = (str(Path(sys.executable).with_name("podyard")),)
IDLE_SECONDS = 5.0
ASK_EVERY_SECONDS = 0.02
FOLLOW_EVERY_SECONDS = 0.2
END_SECONDS_MAX = 120.0
PROGRAM = """
import sys, time
begin = time.time()
for number in range(LINES * SECONDS):
    sys.stdout.write(f"line {number} {time.time():.6f} ...................................................\\n")
    if number % 50 == 49:
        sys.stdout.flush()
        time.sleep(max(0.0, begin + number / LINES - time.time()))
"""  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        up = [
            *PODYARD,
            "up",
            "--data",
            str(data),
            "--fleet",
            "instant",
            "--port",
            "0",
            "--grpc-port",
            "0",
            "--detach",
        ]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        try:
            _measure(data, options.lines, options.seconds)
        finally:
            subprocess.run(
                [*PODYARD, "down", "--data", str(data)], check=True, stdout=subprocess.DEVNULL
            )


def _measure(data: Path, lines: int, seconds: int) -> None:
    url, token = read_json(data / "podyard.json")["url"], (data / "token").read_text().strip()
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=False, timeout=60
    ) as client:
        nodes, jobs = (f"/{root}/projects/demo/locations/{ZONE}" for root in ("v2", "podyard/v1"))
        asked = {"acceleratorType": "v2-32", "runtimeVersion": "tpu-vm-base"}
        client.post(f"{nodes}/nodes?nodeId=n", json=asked).raise_for_status()
        _until(lambda: client.get(f"{nodes}/nodes/n").json().get("state") == "READY")
        idle = _waits(client, f"{nodes}/nodes/n", time.monotonic() + IDLE_SECONDS)
        program = PROGRAM.replace("LINES", str(lines)).replace("SECONDS", str(seconds))
        body = {"node": "n", "run": {"command": f"{sys.executable} - <<'END'\n{program}END"}}
        made = client.post(f"{jobs}/jobs?jobId=j", json=body)
        assert made.status_code == 200, made.text
        follower = _Follower(url, token, f"{jobs}/jobs/j")
        follower.start()
        busy: list[float] = []
        while not follower.is_over:
            part = _waits(client, f"{nodes}/nodes/n", time.monotonic() + 0.5)
            if follower.is_busy:
                busy += part
        follower.join()
    expected = lines * seconds
    whole = all(follower.numbers[rank] == expected for rank in range(WORKERS))
    print(
        f"{follower.state}: {sum(follower.numbers.values()):,} of {WORKERS * expected:,} lines, "
        f"in order: {whole}"
    )
    late = sorted(follower.late)
    print(
        f"visible after {_at(late, 0.5):.2f} s (median), {_at(late, 0.99):.2f} s (99 %), "
        f"{late[-1]:.2f} s (last)"
    )
    print(
        f"GET node: p50 {_at(sorted(idle), 0.5) * 1e3:.1f} ms idle, "
        f"{_at(sorted(busy), 0.5) * 1e3:.1f} ms busy"
    )
    quiet, loud = _at(sorted(idle), 0.99), _at(sorted(busy), 0.99)
    print(
        f"of it p99 {quiet * 1e3:.1f} ms idle, {loud * 1e3:.1f} ms busy: {loud / quiet:.1f} times "
        f"({len(busy)} asked)"
    )


class _Follower(threading.Thread):
    """Reads the log page by page, as `podyard job logs -f` does."""

    def __init__(self, url: str, token: str, path: str) -> None:
        super().__init__()
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx.Client(base_url=url, headers=headers, verify=False, timeout=60)
        self._path = path
        self.numbers: Counter[int] = Counter()
        self.late: list[float] = []
        self.state = ""
        self.is_over = self.is_busy = False

    def run(self) -> None:
        place = ""
        while not self.is_over:
            ended = self._state() in ("SUCCEEDED", "FAILED")
            while True:
                page = self._client.get(
                    f"{self._path}:logs?pageSize=5000&stream=stdout&pageToken={place}"
                ).json()
                place = page["nextPageToken"]
                self._take(page["lines"], time.time())
                if not page["more"]:
                    break
            self.is_over = ended
            time.sleep(FOLLOW_EVERY_SECONDS)
        self.is_busy = False

    def _state(self) -> str:
        self.state = str(self._client.get(self._path).json()["state"])
        return self.state

    def _take(self, lines: list[dict[str, Any]], now: float) -> None:
        for line in lines:
            word, number, printed, *_ = line["line"].split()
            assert (word, int(number)) == ("line", self.numbers[line["worker"]]), line
            self.numbers[line["worker"]] += 1
            self.late.append(now - float(printed))
        self.is_busy = bool(lines) or self.is_busy


def _waits(client: httpx.Client, path: str, until: float) -> list[float]:
    found = []
    while time.monotonic() < until:
        begin = time.monotonic()
        client.get(path).raise_for_status()
        found.append(time.monotonic() - begin)
        time.sleep(ASK_EVERY_SECONDS)
    return found


def _until(ask: Any) -> None:
    deadline = time.monotonic() + END_SECONDS_MAX
    while not ask():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


if __name__ == "__main__":
    main()
