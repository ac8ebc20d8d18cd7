"""`make mutants`: every planted bug, what found it, and in how many seconds. Exit code 1 when one
is missed, or when a check also fails on the code as it is.

Each bug gets a process of its own. `--seeds NAME...` looks for seeds that notice these. As a plugin
of pytest, this plants the bug that PODYARD_MUTANT names, before any test is imported.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from podyard.simulation.run import simulate
from tests.simulation import mutant, mutants, mutants_by_hand
from tests.simulation.mutant import MUTANTS, Mutant

assert mutants and mutants_by_hand  # they fill the list
ROOT = Path(__file__).parents[2]
VARIABLE = "PODYARD_MUTANT"
SECONDS_MAX = 120
SEEDS_TRIED, SEEDS_WANTED = 12, 3
PROCESSES = 2
_TESTS_FAILED, _ALL_PASSED = int(pytest.ExitCode.TESTS_FAILED), int(pytest.ExitCode.OK)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """`by` is empty when nothing has found it; `why` then says what came instead."""

    name: str
    invariant: str
    by: str
    seconds: float
    why: str = ""


class _TooLongError(Exception):
    pass


def pytest_configure(config: pytest.Config) -> None:
    del config
    if name := os.environ.get(VARIABLE):
        _named(name).patch(pytest.MonkeyPatch())


def _named(name: str) -> Mutant:
    return next(item for item in MUTANTS if item.name == name)


def look_for(name: str) -> Finding:
    """Plants the bug in this process, for good."""
    candidate, began = _named(name), time.monotonic()
    try:
        _limit()
        by, why = _by_test(candidate) if candidate.test else _by_simulation(candidate)
    except _TooLongError:
        by, why = "", f"nothing within {SECONDS_MAX} s"
    finally:
        signal.alarm(0)
    return Finding(name, candidate.invariant, by, time.monotonic() - began, why)


def _limit() -> None:
    def stop(*_: object) -> None:
        raise _TooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS_MAX)


def _by_simulation(candidate: Mutant) -> tuple[str, str]:
    candidate.patch(pytest.MonkeyPatch())
    seen: list[set[str]] = []
    for seed in candidate.seeds:
        seen.append(candidate.found(seed))
        if candidate.invariant in seen[-1]:
            return run_of(candidate, seed), ""
    return "", f"seeds {candidate.seeds} find {seen}"


def run_of(candidate: Mutant, seed: int) -> str:
    if candidate.events is None:
        return candidate.scenario(seed).command()
    events = next(name for name, value in vars(mutant).items() if value is candidate.events)
    return f"simulate the events {events} of tests/simulation/mutant.py"


def _by_test(candidate: Mutant) -> tuple[str, str]:
    status = _run_tests([candidate.test], candidate.name)
    return (
        (candidate.test, "")
        if status == _TESTS_FAILED
        else ("", f"pytest ends with status {status}")
    )


def _run_tests(tests: Sequence[str], planted: str) -> int:
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.simulation.mutant_table"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    env = {**os.environ, VARIABLE: planted}
    return subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).returncode


def check_control(number: int) -> list[str]:
    """Return what fails on the code as it is, of the runs (number 0) or the tests (1) that find the
    bugs."""
    if number == 1:
        tests = sorted({item.test for item in MUTANTS if item.test})
        status = _run_tests(tests, "")
        return (
            []
            if status == _ALL_PASSED
            else [f"the tests end with status {status}: {' '.join(tests)}"]
        )
    runs = {run_of(item, seed): item.scenario(seed) for item in MUTANTS for seed in item.seeds}
    return [run for run, scenario in sorted(runs.items()) if simulate(scenario).is_failure]


def _print_table(findings: Sequence[Finding]) -> None:
    width = max((len(item.name) for item in findings), default=0)
    print(f"{'bug':{width}}  {'breaks':6}  seconds  found by")
    for item in findings:
        by = item.by or f"MISSED: {item.why}"
        print(f"{item.name:{width}}  {item.invariant:6}  {item.seconds:7.1f}  {by}")


def _look_for_seeds(names: Sequence[str]) -> None:
    for candidate in map(_named, names):
        seen: dict[int, list[str]] = {}
        for seed in range(SEEDS_TRIED if candidate.events is None else 1):
            with pytest.MonkeyPatch.context() as patch:
                candidate.patch(patch)
                found = candidate.found(seed)
            if found:
                seen[seed] = sorted(found)
            if sum(candidate.invariant in item for item in seen.values()) == SEEDS_WANTED:
                break
        print(candidate.invariant, candidate.name, seen, flush=True)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Plant bugs, and print what finds each of them.")
    parser.add_argument("names", nargs="*", help="bugs (default: all)")
    parser.add_argument("--seeds", action="store_true", help="look for seeds that notice the bugs")
    given = parser.parse_args(argv)
    names = given.names or [item.name for item in MUTANTS]
    if given.seeds:
        _look_for_seeds(names)
        return 0
    with multiprocessing.get_context("fork").Pool(PROCESSES, maxtasksperchild=1) as pool:
        control = pool.map_async(check_control, range(2), chunksize=1)
        findings = pool.map(look_for, names, chunksize=1)
        broken = [what for found in control.get() for what in found]
    return conclude(findings, broken)


def conclude(findings: Sequence[Finding], broken: Sequence[str]) -> int:
    """Prints the table and what fails without any bug; returns the exit code."""
    _print_table(findings)
    missed = [item.name for item in findings if not item.by]
    print(f"{len(findings) - len(missed)} of {len(findings)} bugs are found")
    for what in broken:
        print(f"fails without any bug: {what}")
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
