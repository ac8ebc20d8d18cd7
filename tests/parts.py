"""What `.ci/run` leaves out on a slow machine.

    python -m tests.parts

A machine that takes much longer than the reference cannot run everything in the time that `.ci/run`
has. It runs one part of the files; the hash of the commit says which. The command measures the
machine, and prints the part for PODYARD_TEST_PART (`1/3`), or nothing where everything is to run.
The tests of `make fast` run always. The header of the run names the part.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.stack import measure_slowness
from tests.waiting import slowness

PART_VARIABLE = "PODYARD_TEST_PART"
# (slowness, parts up to it): what fits in the 90 minutes of `.ci/run`, of which everything takes
# some 70 for each unit of slowness (docs/internals/tests.md).
PARTS_BY_SLOWNESS = ((1.2, 1), (2.4, 3), (math.inf, 6))


def part_of(commit: str, slow: float) -> str:
    """The part that a machine runs which takes `slow` times as long as the reference; empty:
    everything."""
    count = next(count for limit, count in PARTS_BY_SLOWNESS if slow <= limit)
    return "" if count == 1 else f"{int(commit, 16) % count + 1}/{count}"


def chosen() -> tuple[int, int] | None:
    """(part from 0, number of parts), or None where everything runs."""
    text = os.environ.get(PART_VARIABLE)
    if not text:
        return None
    part, count = text.split("/")
    return int(part) - 1, int(count)


def left_out(files: Iterable[str], part: int, count: int) -> set[str]:
    """The files of the other parts: files are dealt in turn, by their names."""
    return {file for index, file in enumerate(sorted(set(files))) if index % count != part}


def header() -> str:
    found = chosen()
    return "" if found is None else f"; part {found[0] + 1} of {found[1]} of the files"


def _commit() -> str:
    """Its hash; 0 where git cannot tell."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return done.stdout if done.returncode == 0 else "0"


if __name__ == "__main__":
    measure_slowness()
    print(part_of(_commit(), slowness()))
    print(f"slowness of this machine: {slowness():.2f}", file=sys.stderr)
