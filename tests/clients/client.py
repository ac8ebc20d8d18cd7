"""Runs programs with the Python of an environment of theirs, through `podyard run`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from podyard.cli.redirect import tls as redirect_tls
from tests.clients.outside import Outside
from tests.conftest import require
from tests.stack import PODYARD, Stack

ENVIRONMENTS = Path(__file__).parents[2] / ".venv-clients"
# of one program: TensorFlow's import takes 20 s on a busy machine, Ray waits in steps of 5 s
SECONDS_MAX = 150.0
# Settings that lead a client elsewhere, or to a user's own credentials.
_DROPPED = ("PODYARD_", "GOOGLE_", "CLOUDSDK_", "GCE_", "TPU_", "PYTHON")
_DROPPED_NAMES = frozenset(
    (
        *(
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "https_proxy",
            "http_proxy",
            "all_proxy",
            "no_proxy",
        ),
        *redirect_tls.BUNDLE_VARIABLES,
    )
)


class Client:
    def __init__(
        self, environment: str, program: Path, stack: Stack, outside: Outside, home: Path
    ) -> None:
        python = ENVIRONMENTS / environment / "bin" / "python"
        # The stamp is written last: an environment that is half made is none.
        made = (python.parents[1] / ".made").is_file()
        self._python = require(
            str(python) if made else None, f"the environment {environment} of `make real`"
        )
        self._program = program
        self._stack = stack
        self._outside = outside
        self._home = home

    def run(self, case: str, *arguments: str) -> Any:
        """Return what a case of the program answers."""
        return json.loads(self.printed(case, *arguments).splitlines()[-1])

    def printed(self, *arguments: str) -> str:
        """Return what the program prints; the test fails with all that it said when it fails."""
        command = [*PODYARD, "run", "--data", str(self._stack.data), "--", self._python]
        done = subprocess.run(
            [*command, "-W", "ignore", str(self._program), *arguments],
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            cwd=self._home,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _environ(self) -> dict[str, str]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(_DROPPED) and k not in _DROPPED_NAMES
        }
        return (
            kept
            | self._outside.environ()
            | {"HOME": str(self._home), "PODYARD_DATA": str(self._stack.data)}
        )
