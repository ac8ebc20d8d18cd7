"""The Celery worker of an agent, as a child process: it takes the messages of the broker, and pokes
the agent."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.base.interpreter import python_command

logger = logging.getLogger(__name__)

RESTART_SECONDS = (0.2, 1.0, 3.0, 10.0)  # waits before the 1st, 2nd, ... restart in a row
STEADY_SECONDS = 30.0
STOP_SECONDS = 3.0


class CeleryChild:
    """The Celery worker of this agent: restarted when it dies. It ends with the agent: it watches a
    pipe. `is_poked_by_loop`: it starts with the first poke, which comes with each message; an idle
    stack does without it."""

    def __init__(
        self,
        agent_id: str,
        env: Mapping[str, str],
        clock: RealClock,
        *,
        is_poked_by_loop: bool = False,
    ) -> None:
        self._is_poked_by_loop = is_poked_by_loop
        self._is_wanted = not is_poked_by_loop
        self._env = dict(env)
        self._clock = clock
        # Who has no database would take background work from those who can do it.
        queues = [f"agent.{agent_id}", *(["background"] if "PODYARD_DATABASE_URL" in env else [])]
        worker = ("podyard.workers.tasks.celery_worker", f"{agent_id}@podyard", ",".join(queues))
        self.argv = python_command("-m", *worker)
        self._read_end, self._write_end = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._restarts = 0
        self._start_at: float = float("-inf")

    def watch(self) -> None:
        now = self._clock.monotonic_seconds()
        if self._process is not None and self._process.poll() is not None:
            if now - self._started > STEADY_SECONDS:
                self._restarts = 0
            wait = RESTART_SECONDS[min(self._restarts, len(RESTART_SECONDS) - 1)]
            logger.warning(
                "the Celery worker ended with %s; again in %s s", self._process.returncode, wait
            )
            self._restarts += 1
            self._start_at = now + wait
            self._process = None
        if self._is_wanted and self._process is None and now >= self._start_at:
            env = {**self._env, "PODYARD_AGENT_PIPE": str(self._read_end)}
            self._process = subprocess.Popen(
                self.argv, env=env, stdin=subprocess.DEVNULL, pass_fds=(self._read_end,)
            )
            self._started = now

    def want(self) -> None:
        """There may be a message for it."""
        self._is_wanted = True

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def takes_pokes(self) -> bool:
        """Return whether the agent is poked when it has work."""
        return self._is_poked_by_loop or self.is_running()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        os.close(self._write_end)
        os.close(self._read_end)


def make(
    agent_id: str, broker_url: str | None, poke_path: Path, clock: RealClock, is_poked_by_loop: bool
) -> CeleryChild | None:
    """None where no broker brings messages."""
    if broker_url is None or broker_url.startswith("memory:"):
        return None  # nobody but this machine could send: the sync each second does all the work
    # On the platform's own machine there is a database, which background tasks use; other agents
    # have none.
    # Exports are priced by the rate card and written into the data folder.
    own = ("PODYARD_DATABASE_URL", "PODYARD_DATA", "PODYARD_RATE_CARD", "PODYARD_WEBHOOK_ADDRESSES")
    passed = ("PATH", "HOME", "LANG", "PYTHONPATH", *own)
    keep = {name: value for name, value in os.environ.items() if name in passed}
    env = {**keep, "PODYARD_BROKER_URL": broker_url, "PODYARD_POKE_FIFO": str(poke_path)}
    return CeleryChild(agent_id, env, clock, is_poked_by_loop=is_poked_by_loop)
