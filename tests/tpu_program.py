"""`podyard run --tpu` as people start it, for tests of programs that know nothing of Podyard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.stack import PODYARD

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 180


def environ(**changes: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PODYARD_", "JAX_", "XLA_"))
    }
    return kept | changes


def run(options: str, *command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PODYARD, "run", *options.split(), "--", sys.executable, *command],
        env=environ(**changes), capture_output=True, text=True, timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def code(text: str) -> tuple[str, str]:
    return "-c", textwrap.dedent(text)


def report(
    options: str, folder: Path, *command: str
) -> tuple[subprocess.CompletedProcess[str], Any]:
    file = folder / "report.json"
    done = run(f"{options} --report {file}", *command)
    return done, json.loads(file.read_text())
