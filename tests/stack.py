"""A whole Podyard for tests: real processes on a scratch folder, and the means to kill them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from podyard.base.clock import OsClock
from podyard.base.rng import secret_token
from podyard.control.access import identity
from podyard.control.checks import fsck
from podyard.db.store.unit_of_work import Database
from podyard.pricing.current_card import default_rate_card
from podyard.stack.fleets import read_fleet
from tests.waiting import patient, set_slowness, until

# As the console script starts it, whose path does not begin with the current folder.
PODYARD = [sys.executable, "-P", "-c", "from podyard.main import cli; cli()"]
READY_SECONDS_MAX = 60.0


class Stack:
    """`ports`: of HTTP and gRPC, 0 for any free one. Whatever the first start got is what every
    later one asks for, as with a user's fixed ports: an `up` after a kill must get them back.
    `folder`: where commands are typed."""

    def __init__(
        self,
        data: Path,
        env: dict[str, str] | None = None,
        fleet: str | None = "instant",
        ports: tuple[int, int] = (0, 0),
        folder: Path | None = None,
    ) -> None:
        self.data = data
        self.folder = folder
        self.fleet = fleet
        self.env = env or {}
        self.ports = ports
        self.url = ""
        self.http = httpx.Client(verify=False)

    def up(self) -> None:
        done = self.podyard("up", "--detach", *self.up_options())
        assert done.returncode == 0, done.stderr
        state = self.state()
        self.url, self.ports = state["url"], (state["ports"]["http"], state["ports"].get("grpc", 0))
        self.http.close()
        headers = {"Authorization": f"Bearer {self.token}"}
        self.http = httpx.Client(
            base_url=self.url, headers=headers, timeout=patient(30), trust_env=False, verify=False
        )

    def state(self) -> dict[str, Any]:
        """Return what the supervisor has written once it was ready."""
        found: dict[str, Any] = json.loads((self.data / "podyard.json").read_text())
        return found

    def up_options(self) -> list[str]:
        fleet = [] if self.fleet is None or "PODYARD_FLEET" in self.env else ["--fleet", self.fleet]
        return ["--port", str(self.ports[0]), "--grpc-port", str(self.ports[1]), *fleet]

    def down(self) -> None:
        done = self.podyard("down")
        assert done.returncode == 0, done.stderr

    def podyard(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command(arguments[0], "--data", str(self.data), *arguments[1:])

    def command(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """The command line, as it is given."""
        env = {
            name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
        } | self.env
        return subprocess.run(
            [*PODYARD, *words], env=env, capture_output=True, text=True, timeout=patient(seconds),
            stdin=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip

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

        answer: dict[str, Any] = until(ask, 30, f"{method} {path}")
        return answer

    def create_node(self, node: str, kind: str, zone: str, **fields: Any) -> dict[str, Any]:
        path = f"/v2/projects/demo/locations/{zone}/nodes"
        operation = self.call("POST", f"{path}?nodeId={node}", {
            "acceleratorType": kind, "runtimeVersion": "tpu-ubuntu2204-base", **fields,
        })  # fmt: skip
        done = until(
            lambda: _done(self.call("GET", f"/v2/{operation['name']}")), 30, "the operation"
        )
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

        job: dict[str, Any] = until(ask, seconds, path)
        return job

    def wait_steps(self, path: str, steps: int, seconds: float = 90) -> dict[str, Any]:
        def ask() -> dict[str, Any] | None:
            found = self.call("GET", path)
            assert found["state"] not in ("FAILED", "CANCELLED"), found
            # not told yet: not in the answer
            return found if found.get("stepsDone", 0) >= steps else None

        job: dict[str, Any] = until(ask, seconds, f"step {steps} of {path}")
        return job

    def params_sha256(self, path: str) -> str:
        return [
            line.split()[1] for line in self.log_lines(path) if line.startswith("paramsSha256")
        ][-1]

    def log_lines(self, path: str) -> list[str]:
        """All lines of a job's log, of all attempts."""
        return [line["line"] for line in self.log(path)]

    def log(self, path: str) -> list[dict[str, Any]]:
        """As `log_lines`, with the attempt and the worker of each line."""
        lines: list[dict[str, Any]] = []
        token = ""
        while page := (answer := self.call("GET", f"{path}:logs?pageToken={token}"))["lines"]:
            lines += page
            token = answer["nextPageToken"]
        return lines

    def metrics(self, path: str) -> list[dict[str, Any]]:
        return self.pages(f"{path}:metrics?pageSize=10000", "metrics")

    def pages(self, path: str, collection: str) -> list[dict[str, Any]]:
        """All items of a list, from all of its pages."""
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            page = self.call("GET", f"{path}{'&' if '?' in path else '?'}pageToken={token}")
            items += page[collection]
            token = page.get("nextPageToken", "")
            if not token:
                return items

    def pid(self, name: str) -> int:
        return int(json.loads((self.data / "processes.json").read_text())[name]["pid"])

    def supervisor_pid(self) -> int:
        return int(
            json.loads((self.data / "podyard.json").read_text())["pids"]["supervisor"]["pid"]
        )

    def kill(self, name: str) -> None:
        """SIGKILL for a process of the stack, the supervisor included; `status` then knows every
        one that is left."""
        kill(self.supervisor_pid() if name == "supervisor" else self.pid(name))
        until(
            lambda: True if self.status_knows_all() else None,
            10,
            f"a status that knows all after the kill of {name}",
        )

    def kill_while_starting(self, seconds: float) -> None:
        """SIGKILL for an `up` so long after it was started, wherever it is then; `status` knows
        what it has left."""
        env = {
            name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")
        } | self.env
        command = [*PODYARD, "up", "--data", str(self.data), *self.up_options()]
        with subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(seconds)
            process.kill()
        until(
            lambda: True if self.status_knows_all() else None,
            10,
            "a status that knows all after a start cut short",
        )

    def status_knows_all(self) -> bool:
        """Return whether `podyard status` shows exactly the processes that the machine has."""
        before = self.main_processes()
        done = self.podyard("status", "-o", "json")
        if done.returncode not in (0, 1) or not done.stdout:
            return False
        rows = json.loads(done.stdout)["processes"]
        running = {(row["process"], row["pid"]) for row in rows if row["state"] == "running"}
        return running == before == self.main_processes()

    def main_processes(self) -> set[tuple[str, int]]:
        """(name, pid) of what `up` runs, found without Podyard's help."""
        found = set()
        for process in self.processes():
            command = _command(process)
            for name in ("api", "loop", "agent"):
                if (
                    f"podyard.main {name}" in command
                    and _environment(process).get("PODYARD_AGENT", "local") == "local"
                ):
                    found.add((name, process.pid))
            if "cli()" in command and " up " in command and "--detach" not in command:
                found.add(("supervisor", process.pid))
        for process in psutil.process_iter():
            # Redis overwrites its environment and command line.
            with contextlib.suppress(psutil.Error):
                if (
                    process.cwd() == str(self.data.resolve() / "broker")
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.add(("broker", process.pid))
        return found

    def violations(self) -> list[str]:
        """Return what `podyard fsck` would find."""
        fleet = read_fleet((self.data / "fleet").read_text(encoding="utf-8").strip())
        url = self.env.get("PODYARD_DATABASE_URL", f"sqlite:///{self.data / 'podyard.db'}")
        with contextlib.closing(Database(url, OsClock())) as database:
            found = database.read(lambda uow: fsck.check(uow, fleet, default_rate_card()))
        return [str(violation.as_json()) for violation in found]

    def processes(self) -> list[psutil.Process]:
        """Every living process that belongs to this data folder, by its environment or command
        line."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                text = " ".join(process.cmdline()) + " ".join(
                    f"{k}={v}" for k, v in process.environ().items()
                )
                if str(self.data) in text and process.pid != os.getpid():
                    found.append(process)
        return found

    def replicas(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "podyard.workers.replica.replica" in _command(p)]

    def agents(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "podyard.main agent" in _command(p)]

    def start_agent(self, agent_id: str, replicas_max: int) -> subprocess.Popen[bytes]:
        """Another machine, as far as the platform can tell: a second agent, next to the one of
        `up`."""
        token_path = self.data / f"agent-{agent_id}.token"
        if not token_path.exists():
            token = secret_token(24)
            database = Database(f"sqlite:///{self.data / 'podyard.db'}", OsClock())
            database.run(lambda uow: identity.keep_agent_token(uow, token, agent_id))
            database.close()
            token_path.write_text(token)
        settings = {
            "DATA": str(self.data),
            "URL": self.url,
            "AGENT": agent_id,
            "REPLICAS_MAX": str(replicas_max),
        }
        env = os.environ | self.env | {f"PODYARD_{name}": value for name, value in settings.items()}
        command = [sys.executable, "-m", "podyard.main", "agent"]
        with (self.data / f"{agent_id}.log").open("ab") as log:
            return subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def celery(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "podyard.workers.tasks.celery_worker" in _command(p)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def _done(operation: dict[str, Any]) -> dict[str, Any] | None:
    return operation if operation["done"] else None


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def open_stack(
    data: Path,
    env: dict[str, str] | None = None,
    fleet: str | None = "instant",
    ports: tuple[int, int] = (0, 0),
    folder: Path | None = None,
) -> Iterator[Stack]:
    """A running stack, and nothing left of it afterwards. `fleet` None: `up` is not told any.
    `folder`: where commands are typed."""
    stack = Stack(data, env, fleet, ports, folder)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()
        stack.http.close()
        left = until(lambda: True if not stack.processes() else None, 10, "the last process")
        assert left
    assert stack.violations() == []


def measure_slowness() -> None:
    """Sets the slowness of this process and of those that it starts, by the time that one `podyard
    up` takes."""
    with tempfile.TemporaryDirectory(prefix="podyard-slowness-") as folder:
        stack = Stack(Path(folder) / "data")
        began = time.monotonic()
        stack.up()
        seconds = time.monotonic() - began
        stack.down()
        stack.http.close()
    set_slowness(seconds)
