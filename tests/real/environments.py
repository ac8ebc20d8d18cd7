"""The environments of clients (`.venv-clients`), which the Makefile installs."""

from __future__ import annotations

import ast
import dataclasses
import functools
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.real.files import RealFile

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def available() -> tuple[str, ...]:
    """Return the environments that this machine can have: some need a Python 3.12."""
    done = subprocess.run(
        ["make", "-s", "client-names"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(done.stdout.split())


def missing(names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not (ROOT / ".venv-clients" / name / ".made").is_file())


def with_environments(file: RealFile) -> RealFile:
    """Return the file with the environments that it names in a string."""
    if not file.is_client:
        return file
    tree = ast.parse((ROOT / file.name).read_text(encoding="utf-8"))
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return dataclasses.replace(
        file, environments=tuple(name for name in available() if name in words)
    )


def targets(files: Sequence[RealFile]) -> list[str]:
    """Return the targets of make that install what the files need."""
    return sorted({f".venv-clients/{name}/.made" for file in files for name in file.environments})
