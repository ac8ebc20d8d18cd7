"""A program under `podyard run --runtime`, and its report."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from podyard.programs.environments import FOLDER_VARIABLE
from tests.stack import PODYARD

ROOT = Path(__file__).parents[3]
EXAMPLES, PROGRAMS = ROOT / "examples" / "programs", ROOT / "tests" / "programs"
# kept for the next run
FOLDER = os.environ.get(FOLDER_VARIABLE) or str(ROOT / ".venv-clients" / "runtimes")
SECONDS_MAX = 900.0  # with the installation of an environment


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of a program. `modules`: of the report, by name; of equal names the one that ran most
    often."""

    out: str
    err: str
    modules: dict[str, dict[str, Any]]
    step: dict[str, Any] | None

    @property
    def logged(self) -> list[str]:
        """Lines that TensorFlow's logger wrote, without their head."""
        return [str(line) for line in re.findall(r"^INFO:tensorflow:(.*)$", self.err, re.MULTILINE)]


def environ() -> dict[str, str]:
    """Return the environment of a program."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    return own | {FOLDER_VARIABLE: FOLDER}


def run_program(
    runtime: str, folder: Path, *command: str, kind: str = "v3-8", code: int = 0, **changes: str
) -> ProgramEnd:
    """Run `python COMMAND` in `folder`; `changes` are of the environment."""
    report = folder / "report.json"
    options = ("--tpu", kind, "--runtime", runtime, "--report", str(report))
    done = subprocess.run(
        [*PODYARD, "run", *options, "--", "python", *command],
        env=environ() | changes,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    document = json.loads(report.read_text())
    ordered = sorted(document["modules"], key=lambda one: int(one["runs"]))
    step = next((one for one in ordered if one["digest"] == document["step"]), None)
    return ProgramEnd(done.stdout, done.stderr, {one["name"]: one for one in ordered}, step)
