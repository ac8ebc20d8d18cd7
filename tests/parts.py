"""What `.ci/run` leaves out on a slow machine.

A machine that takes much longer than the reference cannot run everything in the time that `.ci/run` has. With
`PODYARD_TEST_PARTS=auto` it runs one part of the files; the number of commits says which. The tests of `make fast` run
always. The header of the run names the part.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

ASKED_VARIABLE = "PODYARD_TEST_PARTS"
PART_VARIABLE = "PODYARD_TEST_PART"  # for the workers of a run: `1/3`
# (slowness, parts up to it): what fits in the 90 minutes of `.ci/run` with its set-up and the clients, of which
# everything takes some 50 for each unit of slowness (docs/internals/tests.md).
PARTS_BY_SLOWNESS = ((1.6, 1), (3.0, 3), (math.inf, 6))


def choose(slowness: float) -> None:
    """Sets the part for this process and those that it starts."""
    os.environ.pop(PART_VARIABLE, None)
    count = next(count for limit, count in PARTS_BY_SLOWNESS if slowness <= limit)
    if os.environ.get(ASKED_VARIABLE) == "auto" and count > 1:
        os.environ[PART_VARIABLE] = f"{_commit_number() % count + 1}/{count}"


def chosen() -> tuple[int, int] | None:
    """(part from 0, number of parts), or None where everything runs."""
    text = os.environ.get(PART_VARIABLE)
    if text is None:
        return None
    part, count = text.split("/")
    return int(part) - 1, int(count)


def left_out(files: Iterable[str], part: int, count: int) -> set[str]:
    """The files of the other parts: files are dealt in turn, by their names."""
    return {file for index, file in enumerate(sorted(set(files))) if index % count != part}


def header() -> str:
    found = chosen()
    return "" if found is None else f"; part {found[0] + 1} of {found[1]} of the files"


def _commit_number() -> int:
    """How many commits there are: consecutive ones run consecutive parts. 0 where git cannot tell."""
    command = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0
