"""Runs of pytest on files of the real tier, with a limit of time."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from podyard.base.clock import OsClock
from tests.real.environments import targets
from tests.real.files import FileResult, RealFile, read_collected, read_results
from tests.real.forecast import WORKERS
from tests.tiers import Tier

ROOT = Path(__file__).resolve().parents[2]
# pytest with its caches off: what the first tier's run has left there is for tests/retry.py.
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tier", Tier.REAL.value)
EVERYTHING = ("tests", "tests/clients")
END_SECONDS_MAX = (
    30.0  # a run that is asked to end takes its processes down; after that it is killed
)


@dataclasses.dataclass(frozen=True)
class Run:
    """`is_ended`: its time was over before all tests were done."""

    results: Sequence[FileResult]
    seconds: float
    is_ended: bool


class CollectionError(Exception):
    """pytest cannot collect the tests; the message is its output."""


def collect(paths: Sequence[str]) -> list[RealFile]:
    """Return the files below the paths that have tests of the real tier."""
    with _reports() as reports:
        command = [
            *PYTEST,
            "--collect-only",
            "-qq",
            "--reports",
            str(reports),
            *(paths or EVERYTHING),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise CollectionError(done.stdout + done.stderr)
        return read_collected(reports.read_text(encoding="utf-8").splitlines())


def run(files: Sequence[RealFile], seconds_max: float | None) -> Run:
    """Install the environments that the files need, and run their tests; end either after
    `seconds_max`."""
    clock = OsClock()
    began = clock.monotonic_seconds()
    needed = targets(files)
    code = _finish(["make", "--no-print-directory", *needed], seconds_max) if needed else 0
    results = [FileResult(file.name, file.tests) for file in files]
    if code == 0:
        workers = (str(WORKERS), "--dist", "loadgroup")
        left = None if seconds_max is None else seconds_max - (clock.monotonic_seconds() - began)
        with _reports() as reports:
            names = [file.name for file in files]
            code = _finish([*PYTEST, "-n", *workers, "--reports", str(reports), *names], left)
            results = read_results(files, reports.read_text(encoding="utf-8").splitlines())
    return Run(results, clock.monotonic_seconds() - began, is_ended=code is None)


@contextlib.contextmanager
def _reports() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="podyard-real-") as folder:
        path = Path(folder) / "reports"
        path.touch()
        yield path


def _finish(command: Sequence[str], seconds_max: float | None) -> int | None:
    """Run a command to its end, and return its exit code; None where it has been ended after
    `seconds_max`."""
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait(None if seconds_max is None else max(seconds_max, 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        print("real: the time is over: what runs is ended", flush=True)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
