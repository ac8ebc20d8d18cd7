"""Runs the agent of a machine that has joined, and starts it again when it ends: `podyard up`
without a platform."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from typing_extensions import override

from podyard.base import agent_identity
from podyard.base.agent_identity import AgentIdentity
from podyard.http.trust import CA_VARIABLE
from podyard.settings import UMASK, Settings
from podyard.stack import processes
from podyard.stack.errors import EXIT_SETUP, SetupError
from podyard.stack.supervisor import Supervisor, python_process

# What belongs to a platform: an agent of another machine has neither its database nor its broker
# but by its identity.
_PLATFORM_VARIABLES = (
    "PODYARD_DATABASE_URL",
    "PODYARD_BROKER_URL",
    "PODYARD_TOKEN",
    "PODYARD_URL",
    "PODYARD_PROJECT",
)


class AgentSupervisor(Supervisor):
    """Supervises one agent in the foreground until SIGTERM or SIGINT."""

    def __init__(self, settings: Settings, identity: AgentIdentity, path: Path) -> None:
        super().__init__(settings)
        self._identity = identity
        self._path = path

    @override
    def start(self) -> str:
        """Starts the agent; returns the platform's URL once it turns. Raises SetupError when it
        refuses to start."""
        try:
            self._claim_folder()
            self._take_over()
            env = {agent_identity.VARIABLE: str(self._path), "PODYARD_AGENT": self._identity.agent}
            if (authority := agent_identity.authority_path(self._path, self._identity)) is not None:
                env[CA_VARIABLE] = str(authority)
            for name in _PLATFORM_VARIABLES:
                os.environ.pop(name, None)
            self._add("agent", python_process("agent"), env, without=_PLATFORM_VARIABLES)
            self._await(lambda: self._children["agent"].has_beaten)
            self._write_agent_state()
        except BaseException:
            self.stop()
            raise
        return self._identity.url

    def _write_agent_state(self) -> None:
        pids = {
            process.name: process.as_json()
            for process in processes.recorded_processes(self.settings.data)
        }
        state = {"url": self._identity.url, "agent": self._identity.agent, "pids": pids}
        processes.write_json(self.settings.state_path, state)
        self._written.add(self.settings.state_path)


def run(settings: Settings, identity: AgentIdentity, path: Path) -> int:
    """Runs the agent in the foreground. Returns the exit code."""
    os.umask(UMASK)
    supervisor = AgentSupervisor(settings, identity, path)
    signal.signal(signal.SIGTERM, supervisor.on_signal)
    signal.signal(signal.SIGINT, supervisor.on_signal)
    # without a handler it would not wake the supervisor
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        url = supervisor.start()
        print(f"agent {identity.agent} of {url} runs  (data {settings.data})", flush=True)
        supervisor.watch()
    except SetupError as error:
        print(f"podyard agent: {error.message}", file=sys.stderr)
        return EXIT_SETUP
    finally:
        supervisor.stop()
    return 0
