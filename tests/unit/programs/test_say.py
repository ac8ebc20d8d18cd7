"""Messages that one process of a run writes for all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from podyard.programs.say import SAID_VARIABLE

_SAYS = "from podyard.programs.say import say_once; say_once('a warning'); say_once('another')"
# Two processes, each started by a third that has said the same.
_STARTS = f"{_SAYS}; import subprocess, sys; subprocess.run([sys.executable, '-c', {_SAYS!r}])"


def _stderr(code: str, run: Path | None) -> list[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    if run is not None:
        env[SAID_VARIABLE] = str(run)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_a_process_and_those_that_it_starts_say_it_once() -> None:
    assert _stderr(_STARTS, None) == ["podyard: a warning", "podyard: another"]


def test_the_processes_of_a_run_say_it_once(tmp_path: Path) -> None:
    assert _stderr(_SAYS, tmp_path) == ["podyard: a warning", "podyard: another"]
    assert _stderr(_STARTS, tmp_path) == []


def test_a_run_without_a_folder_that_can_be_written_says_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert _stderr(_SAYS, tmp_path / "file") == ["podyard: a warning", "podyard: another"]
