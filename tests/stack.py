"""A whole Podyard for tests: real processes on a scratch folder, and the means to kill them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from podyard.base.clock import OsClock
from podyard.base.rng import secret_token
from podyard.control import access
from podyard.db.unit_of_work import Database
from tests.waiting import patient, until

PODYARD = [sys.executable, "-c", "from podyard.main import cli; cli()"]
READY_SECONDS_MAX = 60.0


class Stack:
    def __init__(self, data: Path, env: dict[str, str] | None = None, fleet: str | None = "instant") -> None:
        self.data = data
        self.fleet = fleet
        self.env = env or {}
        self.url = ""
        self.http = httpx.Client(verify=False)

    def up(self) -> None:
        fleet = [] if self.fleet is None or "PODYARD_FLEET" in self.env else ["--fleet", self.fleet]
        done = self.podyard("up", "--port", "0", "--detach", *fleet)
        assert done.returncode == 0, done.stderr
        self.url = json.loads((self.data / "podyard.json").read_text())["url"]
        self.http.close()
        headers = {"Authorization": f"Bearer {self.token}"}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=patient(30), trust_env=False, verify=False)

    def down(self) -> None:
        done = self.podyard("down")
        assert done.returncode == 0, done.stderr

    def podyard(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
        env |= self.env
        command = [*PODYARD, arguments[0], "--data", str(self.data), *arguments[1:]]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=patient(120))

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """An answer, asked again while a killed API comes back."""

        def ask() -> dict[str, Any] | None:
            try:
                response = self.http.request(method, path, json=body)
            except httpx.TransportError:
                return None
            assert response.status_code == 200, response.text
            found: dict[str, Any] = response.json()
            return found

        return until(ask, 30, f"{method} {path}")

    def create_node(self, node: str, kind: str, zone: str, **fields: Any) -> dict[str, Any]:
        path = f"/v2/projects/demo/locations/{zone}/nodes"
        operation = self.call("POST", f"{path}?nodeId={node}", {
            "acceleratorType": kind, "runtimeVersion": "tpu-vm-base", **fields,
        })  # fmt: skip
        done = until(lambda: _done(self.call("GET", f"/v2/{operation['name']}")), 30, "the operation")
        assert "error" not in done, done
        return self.call("GET", f"{path}/{node}")

    def delete_node(self, node: str, zone: str) -> None:
        operation = self.call("DELETE", f"/v2/projects/demo/locations/{zone}/nodes/{node}")
        until(lambda: _done(self.call("GET", f"/v2/{operation['name']}")), 30, "the deletion")

    def submit(self, job: str, zone: str, **fields: Any) -> str:
        """Submits a job once an agent lives; returns the job's path."""
        until(lambda: self.call("GET", "/podyard/v1/agents")["agents"] or None, 30, "an agent")
        path = f"/podyard/v1/projects/demo/locations/{zone}/jobs"
        self.call("POST", f"{path}?jobId={job}", {"recipe": "digits-cnn", **fields})
        return f"{path}/{job}"

    def wait_job(self, path: str, seconds: float = 180) -> dict[str, Any]:
        final = ("SUCCEEDED", "FAILED", "CANCELLED")

        def ask() -> dict[str, Any] | None:
            found = self.call("GET", path)
            return found if found["state"] in final else None

        return until(ask, seconds, path)

    def wait_steps(self, path: str, steps: int, seconds: float = 90) -> dict[str, Any]:
        def ask() -> dict[str, Any] | None:
            found = self.call("GET", path)
            assert found["state"] not in ("FAILED", "CANCELLED"), found
            return found if found["stepsDone"] >= steps else None

        return until(ask, seconds, f"step {steps} of {path}")

    def params_sha256(self, path: str) -> str:
        return [line.split()[1] for line in self.log_lines(path) if line.startswith("paramsSha256")][-1]

    def log_lines(self, path: str) -> list[str]:
        """All lines of a job's log, of all attempts."""
        lines: list[str] = []
        token = ""
        while page := (answer := self.call("GET", f"{path}:logs?pageToken={token}"))["lines"]:
            lines += [line["line"] for line in page]
            token = answer["nextPageToken"]
        return lines

    def metrics(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", f"{path}:metrics?pageSize=10000")["metrics"]
        return found

    def pid(self, name: str) -> int:
        return int(json.loads((self.data / "processes.json").read_text())[name]["pid"])

    def supervisor_pid(self) -> int:
        return int(json.loads((self.data / "podyard.json").read_text())["pids"]["supervisor"]["pid"])

    def processes(self) -> list[psutil.Process]:
        """Every living process that belongs to this data folder, by its environment or command line."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                text = " ".join(process.cmdline()) + " ".join(f"{k}={v}" for k, v in process.environ().items())
                if str(self.data) in text and process.pid != os.getpid():
                    found.append(process)
        return found

    def replicas(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "podyard.workers.replica" in _command(p)]

    def agents(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "podyard.main agent" in _command(p)]

    def start_agent(self, agent_id: str, replicas_max: int) -> subprocess.Popen[bytes]:
        """Another machine, as far as the platform can tell: an agent of its own, beside the one of `up`."""
        token_path = self.data / f"agent-{agent_id}.token"
        if not token_path.exists():
            token = secret_token(24)
            database = Database(f"sqlite:///{self.data / 'podyard.db'}", OsClock())
            database.run(lambda uow: access.keep(uow, token, f"{agent_id}@agents.podyard.local", agent_id=agent_id))
            database.close()
            token_path.write_text(token)
        settings = {"DATA": str(self.data), "URL": self.url, "AGENT": agent_id, "REPLICAS_MAX": str(replicas_max)}
        env = os.environ | self.env | {f"PODYARD_{name}": value for name, value in settings.items()}
        command = [sys.executable, "-m", "podyard.main", "agent"]
        with (self.data / f"{agent_id}.log").open("ab") as log:
            return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def celery(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "podyard.workers.app" in _command(p)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def _done(operation: dict[str, Any]) -> dict[str, Any] | None:
    return operation if operation["done"] else None


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def open_stack(data: Path, env: dict[str, str] | None = None, fleet: str | None = "instant") -> Iterator[Stack]:
    """A running stack, and nothing left of it afterwards. `fleet` None: `up` is not told any."""
    stack = Stack(data, env, fleet)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()
        stack.http.close()
        left = until(lambda: True if not stack.processes() else None, 10, "the last process")
        assert left
