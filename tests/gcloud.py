"""`gcloud compute tpus tpu-vm ssh` and `scp` as a user types them in a terminal after `eval
"$(podyard env)"`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from podyard.cli.nodes.ssh_setup import needs_setup
from tests.stack import Stack
from tests.waiting import patient, until

PERSON = "user1"  # who types: hosts refuse root
TPU_VM = "gcloud compute tpus tpu-vm"
_COMMAND_SECONDS_MAX = 240.0  # a framework that is imported on several hosts at once


def dials_port_22() -> bool:
    """Return whether gcloud reaches hosts here without `podyard ssh setup`, which would change the
    tester's ~/.ssh/config."""
    has_programs = all(shutil.which(program) for program in ("gcloud", "ssh", "ss"))
    return sys.platform == "linux" and has_programs and not needs_setup()


def create_node(
    stack: Stack, node: str, kind: str, zone: str, version: str = "tpu-vm-base", **more: Any
) -> None:
    """A node with external addresses, as `gcloud ... create` makes it, whose hosts listen for ssh.

    They listen a moment after READY; a user takes longer to type the next command.
    """
    fields = {"runtimeVersion": version, "networkConfig": {"enableExternalIps": True}, **more}
    endpoints = stack.create_node(node, kind, zone, **fields)["networkEndpoints"]
    addresses = {endpoint["accessConfig"]["externalIp"] for endpoint in endpoints}

    def ask() -> bool | None:
        listening = subprocess.run(
            ["ss", "-Hltn"], capture_output=True, text=True, check=True
        ).stdout
        return all(f"{address}:" in listening for address in addresses) or None

    until(ask, 20, "the listeners")


class Terminal:
    """A terminal after `eval "$(podyard env)"`. `home`: the user's, who has set nothing else."""

    def __init__(self, stack: Stack, home: Path) -> None:
        self._exports = stack.podyard("env").stdout
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self._environment = {**kept, "HOME": str(home), "USER": PERSON}

    def start(self, command: str) -> subprocess.Popen[str]:
        """Starts a command in a separate session: `end` also ends the ssh clients that gcloud has
        started."""
        return subprocess.Popen(
            ["sh", "-c", f"{self._exports}\n{command}"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        process = self.start(command)
        try:
            out, err = process.communicate(timeout=patient(_COMMAND_SECONDS_MAX))
        finally:
            end(process)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ends a command of a terminal and all that it has started; what it has printed, on both of its
    outputs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()
