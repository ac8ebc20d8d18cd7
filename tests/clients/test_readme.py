"""The README's first page as a newcomer follows it: a fresh clone, an empty home, each command as
it is printed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import require
from tests.waiting import patient, until

ROOT = Path(__file__).parents[2]
SERVE_SECONDS_MAX = 900  # with an empty package cache most of it is the download of JAX
GCLOUD_SECONDS_MAX = 120


def test_the_first_page_leads_from_a_clone_to_a_node(tmp_path: Path) -> None:
    require(shutil.which("gcloud"), "gcloud")
    blocks = _blocks_of_start()
    serve, create = (block for block in blocks if block.startswith(("git clone", "cd podyard")))
    assert serve.splitlines()[-1].startswith("podyard up")
    home = tmp_path / "home"
    home.mkdir()
    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        first = _shell(serve.replace("URL", str(ROOT), 1), tmp_path, home, output.fileno())
    try:
        until(lambda: _is_ready(first, log), SERVE_SECONDS_MAX, "podyard up")
        assert "accuracy" in log.read_text()
        second = _shell(create, tmp_path, home, subprocess.PIPE)
        printed, _ = second.communicate(timeout=patient(GCLOUD_SECONDS_MAX))
        assert second.returncode == 0, printed
        assert re.search(rb"n1 +us-central1-f +v2-8 .*READY", printed), printed
    finally:
        os.killpg(first.pid, signal.SIGINT)  # Ctrl-C
        first.wait(patient(60))
    assert first.returncode == 0, log.read_text()


def _blocks_of_start() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start = text.split("\n## Start\n")[1].split("\n## ")[0]
    return [block.strip() for block in re.findall(r"```\n(.*?)```", start, re.DOTALL)]


def _shell(commands: str, folder: Path, home: Path, output: int) -> subprocess.Popen[bytes]:
    """A terminal: a shell that stops at the first command that fails, in its own process group."""
    # The interpreter behind the version manager's shims, which look for their own files in the home
    # folder.
    path = os.pathsep.join((f"{sys.base_prefix}/bin", os.environ["PATH"]))
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_", "LANG"))
    }
    return subprocess.Popen(
        ["bash", "-ec", commands],
        cwd=folder,
        env={**kept, "HOME": str(home), "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _is_ready(shell: subprocess.Popen[bytes], log: Path) -> bool | None:
    text = log.read_text()
    assert shell.poll() is None, text
    return True if "Podyard is ready" in text else None
