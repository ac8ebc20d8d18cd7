"""Start a supervisor in the background and wait until it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from podyard.base.clock import OsClock
from podyard.base.files import read_json
from podyard.base.interpreter import python_command
from podyard.settings import STATE_FILE
from podyard.stack.progress import STALL_SECONDS_MAX, StartProgress, cpu_seconds

_POLL_SECONDS = 0.05


def start_detached(
    arguments: list[str],
    data: Path,
    title: str,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any] | int:
    """Starts a command that supervises processes of the folder in a new session, with these
    variables besides those of this process. Returns the state that it writes once it is ready, or
    its exit code."""
    # A file, not a pipe: it goes on writing there after we are gone.
    with tempfile.TemporaryFile() as said:
        return _watched_start(arguments, data, title, environment, said)


def _watched_start(
    arguments: list[str], data: Path, title: str, environment: Mapping[str, str], said: IO[bytes]
) -> dict[str, Any] | int:
    process = subprocess.Popen(
        python_command("-c", "from podyard.main import cli; cli()", *arguments),
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        start_new_session=True,
    )
    clock, polled_seconds = OsClock(), 0.0
    # The supervisor ends by itself where its start makes no progress.
    progress = StartProgress(clock.monotonic_seconds())
    while not progress.is_stalled(clock.monotonic_seconds()):
        if cpu_seconds(process.pid) > polled_seconds:
            polled_seconds = cpu_seconds(process.pid)
            progress.since = clock.monotonic_seconds()
        state: dict[str, Any] = read_json(data / STATE_FILE)
        if state.get("pids", {}).get("supervisor", {}).get("pid") == process.pid:
            _repeat(said)
            process.returncode = 0  # it lives on: not ours to wait for
            return state
        if process.poll() is not None:
            _repeat(said)
            return process.returncode
        clock.sleep(_POLL_SECONDS)
    process.terminate()
    text = f"the supervisor has made no progress for {STALL_SECONDS_MAX:.0f} s"
    print(f"{title}: {text}", file=sys.stderr)
    return 1


def _repeat(said: IO[bytes]) -> None:
    said.seek(0)
    text = said.read().decode(errors="replace").strip()
    if text:
        print(text, file=sys.stderr)
